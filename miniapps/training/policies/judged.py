"""The additional interface of a trainer to policies."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from miniapps.learning.gradients.parallel import ParallelTrainer


class JudgedTrainer(ParallelTrainer):
    """A trainer that computes gradients and losses without a step."""

    @abstractmethod
    def gradient(self, step: int, block: int) -> list[np.ndarray]:
        """The gradient of a micro-batch with the current weights, scaled as for encoding, by tensor; not collective."""

    @abstractmethod
    def held_out_loss(self) -> float:
        """The mean loss of the held-out samples. Collective."""
