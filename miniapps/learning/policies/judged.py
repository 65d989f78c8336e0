"""The additional interface of a trainer to policies."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from miniapps.learning.course.trainer import Trainer
from miniapps.learning.optimisers import restore, state_of


class JudgedTrainer(Trainer):
    """A trainer whose gradients travel over wires that a policy chooses, one for each tensor. All methods but `nbytes`
    and `encoded` are collective.

    `tensors`: their shapes; `wires`: those of the next step.
    """

    wires: tuple[str, ...]

    @property
    @abstractmethod
    def tensors(self) -> list[tuple[int, ...]]:
        """The shape of every tensor."""

    @abstractmethod
    def encoded(self) -> list[int]:
        """The tensors of which a wire encodes anything; all others travel as float32 on any wire."""

    @abstractmethod
    def nbytes(self, wire: str, tensor: int) -> int:
        """The bytes of a tensor on a wire."""

    @abstractmethod
    def assign(self, wires: Sequence[str]) -> None:
        """Send the gradient of each tensor over its wire from the next step on."""

    @abstractmethod
    def errors(self, step: int, tensors: Sequence[int], wires: Sequence[str]) -> np.ndarray | None:
        """The sum of the lengths of the encoding errors of contributions to the gradient of `step`, with the current
        weights and without feedback: float64 (tensors, wires) on rank 0, None on others."""

    @abstractmethod
    def all_reduce(self, tensors: Sequence[int], wire: str) -> Callable[[], Any]:
        """A function that adds `tensors`, maybe with others, over a wire, so that its time can be measured. Wires and
        kept errors are undefined afterwards."""

    @abstractmethod
    def held_out_loss(self) -> float:
        """The mean loss of the held-out samples."""

    def held_out_accuracy(self) -> float:
        """The Top-N accuracy of the held-out samples."""
        raise NotImplementedError("this model has no classes")

    @abstractmethod
    def lost(self) -> Any:
        """The errors that wires with feedback keep on this rank."""

    @abstractmethod
    def restore_lost(self, lost: Any) -> None:
        """Continue from the errors of `lost`, which ran over the same wires; None: from errors 0."""

    def copied(self) -> Any:
        """A copy of what a step changes on this rank, without the errors of wires."""
        return [[array.copy() for array in each] for each in state_of(self.optimiser)]

    def go_back(self, copied: Any) -> None:
        """Restore what `copied` returned."""
        restore(self.optimiser, copied)
