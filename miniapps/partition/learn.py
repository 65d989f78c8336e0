"""Training by a plan: every rank keeps and updates its parts of parameters, buffers and the optimiser's state.

The optimiser (`miniapps.training.optimiser`) works element by element, so that an element has the same bits whoever
holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from miniapps.partition.run import Program
from miniapps.training.optimiser import Adam, MomentumSGD


class Learner:
    """A program with the parts of its sources; `whole`: parameters, buffers and inputs by (kind, key).

    `optimiser`: `adam` or `momentum`, with a constant `rate`. Collective to call.
    """

    def __init__(
        self,
        program: Program,
        whole: Mapping[tuple[str, str], torch.Tensor],
        optimiser: str = "adam",
        rate: float = 1e-3,
        momentum: float = 0.9,
    ):
        self.program, self.rate, self.steps = program, rate, 0
        self.values = [x.clone() for x in program.sources(whole)]
        at = {(s.kind, s.key): k for k, s in enumerate(program.plan.sources)}
        self._buffers = [at["buffer", key] for key, _ in program.plan.updates]
        self._inputs = {
            int(s.key): (k, s.tensor.name)
            for (kind, _), k in at.items()
            if (s := program.plan.sources[k]).kind == "input"
        }
        self._learned = [at["parameter", key] for key, _ in program.plan.gradients]
        weights = [self.values[k].numpy() for k in self._learned]
        self.optimiser = Adam(weights) if optimiser == "adam" else MomentumSGD(weights, momentum)

    def give(self, inputs: Sequence[torch.Tensor]) -> None:
        """Other inputs, whole; this rank keeps its parts."""
        for number, whole in enumerate(inputs):
            if number in self._inputs:
                k, name = self._inputs[number]
                self.values[k] = self.program.part(name, whole)

    def step(self) -> torch.Tensor:
        """One step with the present inputs; its loss. `gradients` are those of this rank's parts until the next."""
        self.steps += 1
        loss, self.gradients, updates = self.program(self.values, self.steps)
        self.optimiser.step([x.numpy() for x in self.gradients], 1.0, self.rate, self.steps)
        for k, x in zip(self._buffers, updates, strict=True):
            self.values[k] = x.clone()
        return loss

    def weights(self) -> dict[str, torch.Tensor]:
        """All weights, whole, by key. Collective."""
        plan = self.program.plan
        return {
            plan.sources[k].key: self.program.whole(plan.sources[k].tensor.name, self.values[k])
            for k in self._learned
        }
