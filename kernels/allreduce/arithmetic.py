"""The additions themselves: the executor under MPI and the serial simulator both call these."""

from __future__ import annotations

import numpy as np

from kernels import exact


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


def narrow(words: np.ndarray, rounded: np.ndarray, out: np.ndarray) -> None:
    """Round the exact sums in `words` (*shape, WORDS) to float32 `out`, given them `rounded` to float64.

    Rounding twice could miss the nearest float32 where `rounded` lies halfway between two. So it is first
    rounded to odd: where it is inexact and its last bit even, its neighbour on the side of the sum is taken
    instead (Boldo and Melquiond 2008). `words` and `rounded` are used up.
    """
    finite = np.isfinite(rounded)
    exact.add(words, -np.where(finite, rounded, 0)[None])
    rest = exact.round(words)
    inexact_even = finite & (rest != 0) & (rounded.view(np.int64) & 1 == 0)
    np.copyto(rounded, np.nextafter(rounded, np.copysign(np.inf, rest)), where=inexact_even)
    with np.errstate(over="ignore"):  # beyond float32 the nearest is infinity
        np.copyto(out, rounded, casting="same_kind")
