"""The additions themselves: the executor under MPI and the serial simulator both call these."""

from __future__ import annotations

import numpy as np


def fold(contributions: np.ndarray, out: np.ndarray) -> None:
    """Add `contributions` (k, *shape) over axis 0 into `out` (*shape), left to right, starting from +0.0.

    Starting from +0.0 settles two cases alike for every rank: no contributions make +0.0, and -0.0 becomes
    +0.0, whether or not another rank has contributions.
    """
    if out.size > 1 and contributions.flags.c_contiguous:
        # Row by row: NumPy sums pairwise along the fastest axis only. Tested against a plain loop.
        np.add.reduce(contributions, 0, None, out, False, 0)
    elif len(contributions):
        # One column would be summed pairwise by add.reduce; running sums are left to right by definition.
        np.add(np.add.accumulate(contributions, 0)[-1], 0, out)
    else:
        out.fill(0)


def additions(sources: list[np.ndarray], into: np.ndarray, spare: np.ndarray) -> list[tuple[np.ndarray, ...]]:
    """Triples (a, b, out) for `numpy.add` that add `sources` left to right into `into`, maybe one of them.

    `spare`, an array of the same length, holds the running sum while `into` is still to be read.
    """
    needed = [source is into for source in sources]
    running = spare if any(needed[2:]) else into
    steps = [(sources[0], sources[1], running)]
    steps += [(running, source, running) for source in sources[2:]]
    a, b, _ = steps[-1]
    steps[-1] = (a, b, into)
    return steps


def add_up(sources: list[np.ndarray]) -> np.ndarray:
    """The sum of `sources`, left to right, in a new array."""
    total = np.empty_like(sources[0])
    for a, b, out in additions(sources, total, total):
        np.add(a, b, out)
    return total
