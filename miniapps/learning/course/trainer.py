"""The interface between a course of steps and the trainer of an application."""

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
    """A gradient or a loss is not finite."""


class Trainer(ABC):
    """One repeat on this rank. Construction and all methods except `peek` and `figures` are collective.

    `owner`: the rank of each micro-batch. `loss`: of the last step; `accuracy`: of the last evaluation; NaN before.
    """

    REMEDY = "choose a smaller --rate"  # for numbers that grow without limit
    owner: np.ndarray
    optimiser: MomentumSGD | Adam

    def __init__(self, ctx: Context, regions: Mapping[str, str]):
        self.ctx, self.config, self.tracer = ctx, ctx.config, ctx.tracer
        self.name = {name: self.tracer.name(name, kind) for name, kind in (REGIONS | dict(regions)).items()}
        self.loss = self.accuracy = nan

    # ---- a step

    @abstractmethod
    def peek(self, block: int) -> np.ndarray | None:
        """The writable numbers of a block of the state for injected faults; None if this rank has none."""

    @abstractmethod
    def advance(self, step: int) -> None:
        """Do step `step` of the problem; record the weights before it and its loss. Raises NotFinite on all ranks."""

    @abstractmethod
    def evaluate(self, step: int) -> None:
        """Evaluate the test samples after `step`. Raises RanksDisagree if ranks hold different weights."""

    @abstractmethod
    def trace_weights(self) -> None:
        """Record the weights before the current step, or the final ones after the last step."""

    # ---- the end of a repeat

    @abstractmethod
    def figures(self) -> dict[str, tuple[float, str]]:
        """The figures of merit of the run."""

    @abstractmethod
    def fingerprint(self) -> str:
        """The fingerprint of all learned weights."""

    def record_outputs(self, step: int) -> None:
        """Record outputs after the last step; nothing here."""
        return

    def checks(self) -> list[Check]:
        """Further checks beside the finite loss."""
        return []

    def free(self) -> None:
        """Free resources that the repeat does not free itself."""
        return

    # ---- contents of checkpoints

    def state(self) -> list[Sequence[np.ndarray]]:
        """Weights, and each state of the optimiser, whole, in the order of the tensors."""
        return state_of(self.optimiser)

    def restore(self, state: Sequence[Sequence[np.ndarray]]) -> None:
        """Restore what `state` returned."""
        restore(self.optimiser, state)

    def buffers(self) -> dict[str, Any]:
        """Further arrays that change from step to step, whole, by name; only rank 0's are used."""
        return {}

    def restore_buffers(self, arrays: dict[str, np.ndarray]) -> None:
        """Restore what `buffers` returned."""
        return

    def redistribute(self, counts: list[int]) -> None:
        """Assign to every rank a contiguous run of `counts[rank]` micro-batches."""
        raise NotImplementedError("this trainer cannot redistribute micro-batches")

    # ---- helpers

    def settle(self, finite: bool, loss: float, why: Callable[[], str]) -> None:
        """Set the loss of a step. Raises NotFinite with `why` on all ranks unless loss and gradients are `finite`."""
        if not finite:
            raise NotFinite(
                f"step {self.tracer.step}: {why()}; the trace holds all earlier steps. If no fault was injected, the "
                f"rate is too large: {self.REMEDY}"
            )
        self.loss = loss
        if self.ctx.rank == 0:
            self.tracer.value("loss", loss)
