"""What policies ask of a trainer, beside what any course of steps does."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from miniapps.learning.gradients.parallel import ParallelTrainer


class JudgedTrainer(ParallelTrainer):
    """A trainer whose gradients and losses can be looked at without a step."""

    @abstractmethod
    def gradient(self, step: int, block: int) -> list[np.ndarray]:
        """The gradient of a micro-batch with the present weights as it is encoded, of each tensor; not collective."""

    @abstractmethod
    def held_out_loss(self) -> float:
        """The mean loss of the samples that are held out. Collective."""
