"""The declared tree of each order of additions, which `discover` should find.

Plain definitions over lists of terms; they share only the launch shape with the kernels. The +0.0 at the start of a sum
and lanes without elements are not part of a tree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels.guarantees import known
from kernels.registry import Variant
from kernels.sums import emulated, launch
from kernels.sums.launch import BLOCK, GRID, ITEMS
from kernels.sums.orders import ORDERS
from kernels.tree import Tree

WARP = 32  # elements of `ao` that arrive together
LANES = 64
RUN = 1024  # terms, at most, that `pairwise` does not halve
TREE_BLOCK = 4096  # terms of a block of `block-tree`

NO_TREE = {
    "numpy": "the order is the library's own",
    "torch": "the order is the library's own",
    "cu": "the order is the library's own",
    "kahan": "errors are carried along, so a tree of rounded additions does not describe it",
    "neumaier": "errors are added separately, so a tree of rounded additions does not describe it",
    "dot2": "errors are added separately, so a tree of rounded additions does not describe it",
    "sp-neumaier": "errors are added separately, so a tree of rounded additions does not describe it",
    "omp-reduction": "chance decides",
    "omp-atomic": "chance decides",
    "binned": "the order does not change the bits",
    "fixed-point": "the order does not change the bits",
    "exact": "the order does not change the bits",
}
"""Why an order declares no tree."""


def declared(
    name: str,
    n: int,
    *,
    block: int = BLOCK,
    items: int = ITEMS,
    grid: int = GRID,
    threads: int = 1,
    order: Sequence[int] | np.ndarray | None = None,
) -> Tree | None:
    """The tree by which the order `name` adds n terms, or None where it declares none (`NO_TREE` says why).

    `block`, `items` and `grid` are the launch shape; `threads` (1 or more) is for `omp-ordered`; other orders ignore
    them. `order`: the order of arrival for `ao` (of units of 32 elements) and `spa` (of partial sums), which have no
    tree without it. Raises ChoiceError for an unknown name, ValueError for n < 1, an impossible launch shape, and an
    `order` that is not a permutation of the units.
    """
    known("order of additions", name, ORDERS)
    if n < 1:
        raise ValueError(f"n = {n}: a tree needs at least one term")
    if threads < 1:
        raise ValueError(f"threads {threads}: name the number of threads, 1 or more")
    terms = list(range(n))
    if name in NO_TREE:
        return None
    if name == "reference":
        return left_to_right(terms)
    if name == "lanes":
        return lanes(terms, LANES)
    if name == "pairwise":
        return pairwise(terms)
    if name == "block-tree":
        return aligned([lanes(part, LANES) for part in cut(terms, TREE_BLOCK)])
    if name == "omp-ordered":
        return left_to_right([lanes(part, LANES) for part in shares(terms, threads)])
    if name == "ao":
        return (
            None
            if order is None
            else left_to_right([i for unit in arranged(cut(terms, WARP), order) for i in unit])
        )
    launched = launch.shape(n, block, items, grid)
    partial_sums = [lanes(part, block) for part in cut(terms, launched.segment)]
    if name == "spa":
        return None if order is None else left_to_right(arranged(partial_sums, order))
    if name == "sptr":
        return lanes(partial_sums, block)
    if name == "sp-pairwise":
        return aligned(partial_sums)
    return left_to_right(partial_sums)  # sprg, tprc


def of_variant(variant: Variant, n: int, **parameters) -> Tree | None:
    """The tree that a variant declares for n terms and these parameters; None where it declares none.

    The seed gives the tree of an emulated order of arrival. `threads` is 1 by default.
    """
    shape = {key: parameters[key] for key in ("block", "items", "grid") if key in parameters}
    order = None
    if variant.backend == "emulated":
        units = launch.shape(n, **shape).blocks if variant.name == "spa" else -(-n // emulated.UNITS["ao"])
        order = emulated.arrivals(units, parameters.get("resident", 0), parameters.get("seed", 0))
    return declared(variant.name, n, **shape, threads=parameters.get("threads", 1), order=order)


def cut(terms: Sequence[Tree], length: int) -> list[Sequence[Tree]]:
    """Consecutive parts of `length` terms; the last may be shorter."""
    return [terms[start : start + length] for start in range(0, len(terms), length)]


def shares(terms: Sequence[Tree], threads: int) -> list[Sequence[Tree]]:
    """Consecutive parts for so many threads; the first ones may have one more term. Empty parts are left out."""
    least, longer = divmod(len(terms), threads)
    parts, start = [], 0
    for thread in range(threads):
        end = start + least + (thread < longer)
        parts.append(terms[start:end])
        start = end
    return [part for part in parts if part]


def arranged(units: Sequence, order: Sequence[int] | np.ndarray) -> list:
    """The units in an order of arrival; raises ValueError if `order` is not a permutation of them."""
    order = [int(unit) for unit in order]
    if sorted(order) != list(range(len(units))):
        raise ValueError(
            f"an order of arrival of {len(units)} units must be a permutation of 0 ... {len(units) - 1}"
        )
    return [units[unit] for unit in order]


def left_to_right(terms: Sequence[Tree]) -> Tree:
    """((t[0] + t[1]) + t[2]) + ..."""
    total, *others = terms
    for term in others:
        total = (total, term)
    return total


def lanes(terms: Sequence[Tree], width: int) -> Tree:
    """Lane l adds t[l], t[l + width], ... left to right; then lane[i] += lane[i + w] for w = width/2, ..., 1."""
    lane = [left_to_right(terms[first::width]) for first in range(min(width, len(terms)))]
    w = width // 2
    while w:
        lane = [(lane[i], lane[i + w]) if i + w < len(lane) else lane[i] for i in range(min(w, len(lane)))]
        w //= 2
    return lane[0]


def aligned(terms: Sequence[Tree]) -> Tree:
    """The tree of t[i] += t[i + s] for s = 1, 2, 4, ... and i a multiple of 2s, i + s < len(t)."""
    while len(terms) > 1:
        terms = [left_to_right(pair) for pair in cut(terms, 2)]
    return terms[0]


def pairwise(terms: Sequence[Tree]) -> Tree:
    """Halves, the first with ceil(floor(n/2) / 64) * 64 terms, down to at most 1024 terms in 64 lanes."""
    n = len(terms)
    if n <= RUN:
        return lanes(terms, LANES)
    half = -(-(n // 2) // LANES) * LANES
    return pairwise(terms[:half]), pairwise(terms[half:])
