"""Training by a plan: every rank keeps and updates its parts of parameters, buffers and the optimiser's state.

The optimiser (`miniapps.learning.optimisers`) works element by element, so the bits do not depend on owners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from miniapps.learning.optimisers import Adam
from miniapps.partition.execution.run import Program


class Learner:
    """A program with the parts of its sources, None for those of other ranks' stages; `whole`: parameters, buffers and
    inputs by (kind, key).

    `make(weights)`: an optimiser of `miniapps.learning.optimisers` for this rank's parts; callers may set `rate` before
    each step. Calls are collective.
    """

    def __init__(
        self,
        program: Program,
        whole: Mapping[tuple[str, str], torch.Tensor],
        make: Callable = Adam,
        rate: float = 1e-3,
    ):
        self.program, self.rate, self.steps = program, rate, 0
        self.values: list[Any] = [None if x is None else x.clone() for x in program.sources(whole)]
        at = {(s.kind, s.key): k for k, s in enumerate(program.plan.sources)}
        self.buffers = [at["buffer", key] for key, _ in program.updates]
        self._inputs = {
            int(s.key): (k, s.tensor.name)
            for (kind, _), k in at.items()
            if (s := program.plan.sources[k]).kind == "input" and self.values[k] is not None
        }
        self.every = [at["parameter", key] for key, _ in program.plan.gradients]  # of all stages
        self.learned = [at["parameter", key] for key, _ in program.gradients]
        weights = [self.values[k].numpy() for k in self.learned]
        self.optimiser = make(weights)

    def give(self, inputs: Sequence[torch.Tensor]) -> None:
        """Set the whole inputs of the next step, those of each micro-batch (`graphs.repeat.split`); this rank keeps its
        parts."""
        for number, whole in enumerate(inputs):
            if number in self._inputs:
                k, name = self._inputs[number]
                self.values[k] = self.program.part(name, whole)

    def step(self) -> torch.Tensor:
        """One step with the current inputs; returns its loss."""
        loss = self.compute()
        self.update()
        return loss

    def compute(self) -> torch.Tensor:
        """Compute the next step; returns its loss. `gradients`: of this rank's parts, until the next call."""
        self.steps += 1
        loss, self.gradients, self._updates = self.program(self.values, self.steps)
        return loss

    def update(self) -> None:
        """Apply the computed step to weights and buffers."""
        self.optimiser.step([x.numpy() for x in self.gradients], 1.0, self.rate, self.steps)
        for k, x in zip(self.buffers, self._updates, strict=True):
            self.values[k] = x.clone()

    def weights(self) -> dict[str, torch.Tensor]:
        """All weights, whole, by key. Collective."""
        plan = self.program.plan
        return {
            plan.sources[k].key: self.program.whole(plan.sources[k].tensor.name, self.values[k])
            for k in self.every
        }
