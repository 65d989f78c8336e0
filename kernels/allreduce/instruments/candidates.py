"""Candidates for a library's all-reduce: our orderings, and pairs of one inside each node and one across the nodes.

Libraries reduce inside each node to its first rank, all-reduce among these, and broadcast. Bits do not show the
messages, only the tree: that of one ordering, with each contribution replaced by a node's tree of another ordering.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.allreduce import catalog
from kernels.allreduce.schedules.folding import FOLDS
from kernels.allreduce.schedules.k_nomial import SHAPES
from kernels.allreduce.schedules.ring import CUTS
from kernels.allreduce.tree import of_chunks
from kernels.tree import Tree, canonical, expression, fold

TRIED: dict[str, tuple] = {  # values of parameters
    "k": (2, 3, 4, 5, 6, 7, 8, 16, 32),
    "fold": tuple(FOLDS),
    "tree": tuple(SHAPES),
    "start": (-1, 0, 1),
    "cut": tuple(CUTS),
}

Pieces = tuple[tuple[int, int, Tree], ...]  # first element, element behind the last, their tree


@dataclass(frozen=True)
class OverNodes:
    """An ordering inside each node, and one across the nodes' sums; each as all names with the same additions."""

    inside: list[str]
    across: list[str]


def candidates(size: int) -> list[str]:
    """All orderings that have a schedule, with all parameters tried; those with fewest parameters first.

    Of the values of k above the number of ranks one is tried, as all of them are alike. No library adds over blocks or
    by orderings with parameters outside TRIED (the seed of `permuted`). Segments change no addition.
    """
    names = []
    for o in catalog.orderings():
        if not o.scheduled or "owners" in o.needs or not set(o.parameters) <= {*TRIED, "segments"}:
            continue
        tried = {key: TRIED[key] for key in o.parameters if key in TRIED}
        if "k" in tried:
            tried["k"] = (*(k for k in TRIED["k"] if k <= size), max(2, size + 1))
        for values in itertools.product(*tried.values()):
            given = zip(tried, values, strict=True)
            names.append(short_name(o.name + ":" + ",".join(f"{key}={value}" for key, value in given)))
    return sorted(dict.fromkeys(names), key=lambda name: (name.count("="), ":" in name))


def short_name(name: str) -> str:
    """The name of an ordering without the parameters that have their default value."""
    base, _, text = name.partition(":")
    usual = catalog.get(base).parameters
    given = dict(part.split("=") for part in text.split(",") if part)
    other = [f"{key}={value}" for key, value in given.items() if str(usual[key]) != value]
    return f"{base}:{','.join(other)}" if other else base


def classes(
    names: Sequence[str], size: int, n: int, context: Mapping[str, Any]
) -> list[tuple[list[str], Pieces]]:
    """Groups of orderings that make the same additions for a vector of n, each with these additions."""
    return [(same, pieces[size]) for same, pieces in _classes(names, [size], n, context)]


def classes_over_nodes(n: int, nodes: Sequence[Hashable]) -> list[tuple[OverNodes, Pieces]]:
    """Pairs of an ordering inside the nodes and one across them, grouped by their additions for a vector of n.

    `nodes[rank]` is the node of a rank. Empty if there is one node, or each rank has its own: then single orderings are
    enough.
    """
    groups = members(nodes)
    sizes = sorted(set(map(len, groups)))
    if len(groups) < 2 or sizes == [1]:
        return []
    inside = _classes(_of_one_node(max(sizes)), sizes, n, {})
    across = classes(_of_one_node(len(groups)), len(groups), n, {})
    return [
        (
            OverNodes(names, others),
            _composed([_renamed(pieces[len(group)], group) for group in groups], outer),
        )
        for (names, pieces), (others, outer) in itertools.product(inside, across)
    ]


def members(nodes: Sequence[Hashable]) -> list[list[int]]:
    """The ranks of each node, ascending; nodes in the order of their first ranks."""
    groups: dict[Hashable, list[int]] = {}
    for rank, node in enumerate(nodes):
        groups.setdefault(node, []).append(rank)
    return list(groups.values())


def evaluate(pieces: Pieces, vectors: np.ndarray) -> np.ndarray:
    """The sum over the rows of `vectors` (p, n) by these additions."""
    total = np.empty_like(vectors[0])
    for start, stop, tree in pieces:
        part = vectors[:, start:stop]
        total[start:stop] = fold(tree, part.__getitem__, lambda terms: terms[0] + terms[1])
    return total


def _classes(
    names: Sequence[str], sizes: Sequence[int], n: int, context: Mapping[str, Any]
) -> list[tuple[list[str], dict[int, Pieces]]]:
    """Groups of orderings with the same additions for all `sizes`, and these additions by number of ranks."""
    by_tree: dict[tuple, tuple[list[str], dict[int, Pieces]]] = {}
    for name in names:
        pieces = {size: _pieces(name, size, n, context) for size in sizes}
        text = tuple(_text(pieces[size]) for size in sizes)
        by_tree.setdefault(text, ([], pieces))[0].append(name)
    return list(by_tree.values())


def _pieces(name: str, size: int, n: int, context: Mapping[str, Any]) -> Pieces:
    schedule = catalog.get(name).schedule(size, **context)
    bounds = [schedule.bounds(n, chunk) for chunk in range(schedule.chunks)]
    trees = of_chunks(schedule)[0]
    return tuple(
        (start, stop, tree) for (start, stop), tree in zip(bounds, trees, strict=True) if start < stop
    )


def _text(pieces: Pieces) -> tuple[tuple[int, str], ...]:
    """A key, equal for equal additions: where each tree begins, and the tree."""
    texts: list[tuple[int, str]] = []
    for start, _, tree in pieces:
        text = expression(canonical(tree))
        if not texts or texts[-1][1] != text:
            texts.append((start, text))
    return tuple(texts)


def _of_one_node(size: int) -> list[str]:
    """The candidates that know nothing of nodes."""
    return [name for name in candidates(size) if not catalog.get(name).needs]


def _renamed(pieces: Pieces, ranks: Sequence[int]) -> Pieces:
    """The additions inside a node, with its ranks renumbered as those of the communicator."""
    return tuple((start, stop, _replaced(tree, ranks)) for start, stop, tree in pieces)


def _composed(inner: Sequence[Pieces], outer: Pieces) -> Pieces:
    """The outer additions, with each node's sum replaced by its inner additions."""
    cuts = sorted({edge for pieces in (*inner, outer) for start, stop, _ in pieces for edge in (start, stop)})
    return tuple(
        (start, stop, _replaced(_at(outer, start), [_at(pieces, start) for pieces in inner]))
        for start, stop in itertools.pairwise(cuts)
    )


def _at(pieces: Iterable[tuple[int, int, Tree]], element: int) -> Tree:
    return next(tree for start, stop, tree in pieces if start <= element < stop)


def _replaced(tree: Tree, by: Sequence[Tree]) -> Tree:
    """The tree with leaf i replaced by `by[i]`."""
    whole: Tree = fold(tree, by.__getitem__, tuple)
    return whole
