"""Networks for backends whose programs have one shape: a program for each size of batch, made when it is first met."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernels.inference.arrays import aligned_copy, batch_of

Program = Callable[[np.ndarray], np.ndarray]


def by_shape(
    program: Callable[[int], Program], sample: tuple[int, ...], batched: bool
) -> Callable[[np.ndarray], np.ndarray]:
    """A network that asks `program(batch)` for each size of batch once; it is given aligned arrays of that shape."""
    programs: dict[int, Program] = {}

    def network(x: np.ndarray) -> np.ndarray:
        x = batch_of(x, sample, batched)
        if len(x) not in programs:
            programs[len(x)] = program(len(x))
        return programs[len(x)](aligned_copy(x if batched else x[0]))

    return network
