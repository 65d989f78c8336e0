"""The GPU's atomic sums on the CPU: a seed gives the order of arrival that scheduling gives there, on any machine.

Units are 32 consecutive elements of `ao`, as in a warp, or one partial sum of `spa`. They are issued by ascending
index, with `resident` units in flight at once (0: all). In each step a random one of these is added to the total, which
starts from +0.0. splitmix64 makes the random numbers from the seed, so a seed gives the same order on every machine.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable

import numpy as np

from kernels import _native
from kernels.guarantees import known
from kernels.sums import twins
from kernels.sums.elements import terms, vector, widened
from kernels.sums.launch import BLOCK, GRID, ITEMS
from kernels.sums.orders import in_order
from kernels.threads import checked

WARP = 32
UNITS = {"ao": WARP, "spa": 1}  # numbers that arrive together


def units(name: str, x: np.ndarray, block: int = BLOCK, items: int = ITEMS, grid: int = GRID) -> np.ndarray:
    """The numbers that `ao` or `spa` add one by one: the elements, or the partial sums of the blocks.

    A vector of the accumulator's type; `UNITS[name]` consecutive numbers arrive together. The launch shape is for
    `spa`. Raises ChoiceError for another name.
    """
    if known("emulated order of arrival", name, UNITS) == "ao":
        return widened(vector(x))
    return twins.partial_sums(x, None, block, items, grid)


def arrivals(units: int, resident: int = 0, seed: int = 0) -> np.ndarray:
    """The order in which `units` units are added: a permutation, int64 (units,).

    Raises ValueError for a negative `units` or `resident` and for a seed outside [0, 2**64).
    """
    if units < 0:
        raise ValueError(f"units {units}: 0 or more are needed")
    return _native.arrivals(units, _resident(resident), int(_seeds([seed])[0]))


def samples(
    name: str,
    x: np.ndarray,
    seeds: Iterable[int],
    resident: int = 0,
    threads: int = 0,
    block: int = BLOCK,
    items: int = ITEMS,
    grid: int = GRID,
) -> np.ndarray:
    """The sums of `x` by `ao` or `spa`, one for the order of each seed: (seeds,) of the accumulator's type.

    Partial sums are computed once; `threads` share the samples. Raises as `units` and `arrivals`.
    """
    known("emulated order of arrival", name, UNITS)
    numbers = x if name == "ao" else units(name, x, block, items, grid)
    elements, _, kind = terms(numbers)
    return _native.sum_samples(
        elements, kind, UNITS[name], _resident(resident), _seeds(seeds), checked(threads)
    )


@in_order("ao", "sum", backend="emulated")
def ao(x: np.ndarray, seed: int = 0, resident: int = 0) -> np.floating:
    """One addition per element, warp by warp, in the order of arrival for `seed` and `resident`.

    On a device chance decides; here the seed does.
    """
    return samples("ao", x, [seed], resident)[0]


@in_order("spa", "sum", backend="emulated")
def spa(
    x: np.ndarray, block: int = BLOCK, items: int = ITEMS, grid: int = GRID, seed: int = 0, resident: int = 0
) -> np.floating:
    """A tree in each block, then one addition per block, in the order of arrival for `seed` and `resident`.

    On a device chance decides; here the seed does.
    """
    return samples("spa", x, [seed], resident, 0, block, items, grid)[0]


def _resident(resident: int) -> int:
    if resident < 0:
        raise ValueError(f"resident {resident}: choose 1 unit in flight or more, or 0 for all")
    return resident


def _seeds(seeds: Iterable[int]) -> np.ndarray:
    numbers = [operator.index(seed) for seed in seeds]
    for seed in numbers:
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed {seed}: choose one from 0 to 2**64 - 1")
    return np.array(numbers, dtype=np.uint64)
