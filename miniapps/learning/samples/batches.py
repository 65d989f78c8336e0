"""The images of each micro-batch and its dropout mask, which depend only on the seeds and the step."""

import numpy as np

from miniapps.learning.seeds import DROPOUT, ORDER, generator


class Batches:
    """The micro-batches of each step, from 1. Every epoch uses the `count` images in its own order, and leaves out the
    last ones that fill no batch."""

    def __init__(self, count: int, batch: int, micro: int, seed: int):
        self._count, self._batch, self._micro, self._seed = count, batch, micro, seed
        self._epoch, self._order = -1, np.empty(0, np.int64)

    def images(self, step: int, block: int) -> np.ndarray:
        """The numbers of the images, int64 (micro,)."""
        epoch, batch = divmod(step - 1, self._count // self._batch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, generator(self._seed, ORDER, epoch).permutation(self._count)
        first = batch * self._batch + block * self._micro
        return self._order[first : first + self._micro]


def mask(seed: int, step: int, block: int, shape: tuple[int, int], probability: float) -> np.ndarray:
    """The dropout mask, float32 of `shape`: 0 for dropped outputs, else 1 / (1 - probability), which keeps the mean
    (Srivastava et al. 2014)."""
    kept = generator(seed, DROPOUT, step, block).random(shape, np.float32) >= np.float32(probability)
    return kept * np.float32(1.0 / (1.0 - probability))
