"""What a course of steps asks of whatever learns: the contract that the trainer of every application keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from miniapps.errors import RunError
from miniapps.learning.optimisers import Adam, MomentumSGD, restore, state_of
from miniapps.runner.outcome import Check
from miniapps.trace.schema import COMPUTE, FILE, OTHER

if TYPE_CHECKING:
    from miniapps.runner.context import Context

REGIONS = {"step": OTHER, "update": COMPUTE, "evaluate": COMPUTE, "checkpoint": FILE, "record": OTHER}


class NotFinite(RunError):
    """A gradient or a loss is no number."""


class Trainer(ABC):
    """One repeat on this rank. Collective to make, and collective in all that it does but `peek` and `figures`.

    `owner`: the rank of each micro-batch. `loss`: of the last step; `accuracy`: of the last evaluation; NaN before.
    """

    REMEDY = "choose a smaller --rate"  # where numbers grow without end
    owner: np.ndarray
    optimiser: MomentumSGD | Adam

    def __init__(self, ctx: Context, regions: Mapping[str, str]):
        self.ctx, self.config, self.tracer = ctx, ctx.config, ctx.tracer
        self.name = {name: self.tracer.name(name, kind) for name, kind in (REGIONS | dict(regions)).items()}
        self.loss = self.accuracy = nan

    # ---- a step

    @abstractmethod
    def peek(self, block: int) -> np.ndarray | None:
        """Writable numbers of a block of the state, None where this rank has none: where faults strike."""

    @abstractmethod
    def advance(self, step: int) -> None:
        """Step `step` of the problem, recorded: the weights that enter it, its loss. Raises NotFinite on all ranks."""

    @abstractmethod
    def evaluate(self, step: int) -> None:
        """Look at the test samples, after `step`. Raises RanksDisagree where ranks hold other weights."""

    @abstractmethod
    def trace_weights(self) -> None:
        """Record the weights that enter the current step, or, after the last, the final ones."""

    # ---- the end of a repeat

    @abstractmethod
    def figures(self) -> dict[str, tuple[float, str]]:
        """What a run reports."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Of all that was learned."""

    def record_outputs(self, step: int) -> None:
        """Record what is answered after the last step; nothing here."""
        return

    def checks(self) -> list[Check]:
        """What decides on the verdict, beside that the loss is finite."""
        return []

    def free(self) -> None:
        """Give back what the repeat does not free by itself."""
        return

    # ---- what checkpoints hold

    def state(self) -> list[Sequence[np.ndarray]]:
        """Weights, and each state of the optimiser, whole, in the order of the tensors."""
        return state_of(self.optimiser)

    def restore(self, state: Sequence[Sequence[np.ndarray]]) -> None:
        """Go on from what `state` gave."""
        restore(self.optimiser, state)

    def buffers(self) -> dict[str, Any]:
        """What else changes from step to step, whole, by name; only those of rank 0 count."""
        return {}

    def restore_buffers(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from what `buffers` gave."""
        return

    def redistribute(self, counts: list[int]) -> None:
        """Give every rank a contiguous run of so many micro-batches."""
        raise NotImplementedError("its micro-batches stay where they are")

    # ---- helpers

    def settle(self, finite: bool, loss: float, why: Callable[[], str]) -> None:
        """Take the loss of a step; raises NotFinite, with `why`, on all ranks where it, or a gradient, is no number."""
        if not finite:
            raise NotFinite(
                f"step {self.tracer.step}: {why()}; the trace holds every step before. If no fault was injected, the "
                f"rate is too large: {self.REMEDY}"
            )
        self.loss = loss
        if self.ctx.rank == 0:
            self.tracer.value("loss", loss)
