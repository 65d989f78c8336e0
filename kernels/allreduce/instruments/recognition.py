"""Recognises the ordering of a library's all-reduce from the bits of its sums.

The library all-reduces random numbers, and our orderings that could be its algorithm are evaluated on the same numbers;
over several nodes also each pair of them, one inside the nodes and one across. An ordering that differs in any bit is
out; the others make the same additions. Independently, the library's tree is discovered from sums that count
(`kernels.sums.discover`), for every element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np

from kernels.allreduce.instruments.candidates import (
    OverNodes,
    Pieces,
    classes,
    classes_over_nodes,
    evaluate,
    short_name,
)
from kernels.allreduce.instruments.forced import Forced
from kernels.allreduce.instruments.libraries import Library, Way, numbers
from kernels.sums.discover import NotATree, discover
from kernels.tree import NoOrder, Tree, canonical, expression

ELEMENTS = 128  # sums compared, at least: two orders often give the same
SEEDS = 24  # for each element, at least
TREES = 16  # discovered for one length, at most
VERIFIED = 4  # seeds on which a discovered tree is evaluated


@dataclass(frozen=True)
class OneOrder:
    """The tree of some elements, ranges (first, last), or why there is none; `verified`: its sums have the library's
    bits. `orderings`, `over_nodes`: those with this tree for every element."""

    elements: list[tuple[int, int]]
    tree: str
    verified: bool
    orderings: list[str] = field(default_factory=list)
    over_nodes: list[OverNodes] = field(default_factory=list)


@dataclass
class Finding:
    """The findings from the sums of one length."""

    length: int
    calls: int = 0
    repeats: bool = True  # the same numbers have the same sum in every call
    ranks_agree: bool = True
    orderings: list[str] = field(default_factory=list)  # with these bits
    over_nodes: list[OverNodes] = field(default_factory=list)  # pairs of orderings with these bits
    trees: list[OneOrder] = field(default_factory=list)
    more_trees: int = 0  # not discovered
    digest: str = ""  # of the bits of all sums of random numbers, on rank 0

    def as_forced(self, what: Forced) -> bool | None:
        """Whether the bits are those of the forced ordering; None if that ordering is not known."""
        if what.ordering is None:
            return None
        return self.ranks_agree and short_name(what.ordering) in self.orderings

    def across_as_forced(self, what: Forced) -> bool:
        """Whether the forced ordering may be the one across the nodes."""
        return (
            what.ordering is not None
            and self.ranks_agree
            and any(short_name(what.ordering) in each.across for each in self.over_nodes)
        )

    @property
    def recognised(self) -> bool:
        """Whether any ordering or composition has these bits."""
        return bool(self.orderings or self.over_nodes)


def identify(
    library: Library,
    n: int,
    dtype: str = "float64",
    call: str = "blocking",
    names: Sequence[str] = (),
    tree: bool = False,
    context: dict | None = None,
) -> Finding:
    """Finds the orderings among `names` that the library's all-reduce of n numbers may be. Collective; the result is
    complete on rank 0 only.

    `tree`: discover the library's tree even if an ordering has its bits. `context`: `nodes`, the node of each rank, to
    try orderings over nodes. Raises ChoiceError if the library has no such call.
    """
    finding = Finding(n)
    if n == 0:
        return finding
    comm, opened = library.comm, library.opens(n, dtype, Way(call))
    total = opened.total
    try:
        context = context or {}
        alive: list[tuple[list[str] | OverNodes, Pieces]] = []
        if comm.rank == 0:
            alive += classes(names, comm.size, n, context)
            alive += classes_over_nodes(n, context.get("nodes", ()))
        everything = alive
        seen = blake2b()
        for seed in range(max(SEEDS, -(-ELEMENTS // n))):
            own = numbers(seed, comm.rank, n, dtype)
            first, again = total(own), total(own)
            finding.calls += 2
            finding.repeats &= first.tobytes() == again.tobytes()
            seen.update(first.tobytes())
            if alive:
                vectors = _all_numbers(seed, comm.size, n, dtype)
                alive = [each for each in alive if evaluate(each[1], vectors).tobytes() == first.tobytes()]
        repeats, seen_by = zip(*comm.allgather((finding.repeats, seen.digest())), strict=True)
        finding.repeats, finding.ranks_agree = all(repeats), len(set(seen_by)) == 1
        finding.digest = seen.hexdigest()[:32]
        if finding.repeats:
            finding.orderings = [name for each, _ in alive if isinstance(each, list) for name in each]
            finding.over_nodes = [each for each, _ in alive if isinstance(each, OverNodes)]
        if comm.bcast(tree or not finding.recognised):
            if comm.rank == 0:
                finding.trees, finding.more_trees = _trees(
                    comm, n, dtype, total, _of_all_elements(everything)
                )
                comm.bcast(None)
            else:
                while (x := comm.bcast(None)) is not None:
                    total(np.full(n, x[comm.rank]))
    finally:
        opened.free()
    return finding


def _all_numbers(seed: int, size: int, n: int, dtype) -> np.ndarray:
    return np.array([numbers(seed, rank, n, dtype) for rank in range(size)])


def _of_all_elements(
    listed: Sequence[tuple[list[str] | OverNodes, Pieces]],
) -> dict[str, tuple[list[str], list[OverNodes]]]:
    """{tree as canonical text: the orderings, and those over nodes, that have it for every element}."""
    by_tree: dict[str, tuple[list[str], list[OverNodes]]] = {}
    for each, pieces in listed:
        texts = {expression(canonical(tree)) for *_, tree in pieces}
        if len(texts) == 1:
            orderings, over_nodes = by_tree.setdefault(texts.pop(), ([], []))
            if isinstance(each, OverNodes):
                over_nodes.append(each)
            else:
                orderings.extend(each)
    return by_tree


def _trees(
    comm: Any,
    n: int,
    dtype: str,
    total: Callable[[np.ndarray], np.ndarray],
    named: dict[str, tuple[list[str], list[OverNodes]]],
) -> tuple[list[OneOrder], int]:
    """The trees of all elements, with the orderings that have them (`named`, by tree), and how many were left out. Runs
    on rank 0; the other ranks serve.

    A question is p numbers, the same for all elements, so each all-reduce answers for all elements. Elements with equal
    answers so far form a class; one element of each class is asked until no class splits.
    """
    answers = np.zeros(n, np.uint64)  # a hash of all answers, by element
    integers = np.dtype(f"u{np.dtype(dtype).itemsize}")

    def ask(x: np.ndarray, element: int) -> float:
        comm.bcast(x)
        sums = total(np.full(n, x[0]))
        np.multiply(answers, np.uint64(0x9E3779B97F4A7C15), answers)
        np.add(answers, sums.view(integers), answers)
        return float(sums[element])

    asked: dict[int, tuple[Tree | None, str]] = {}  # by element: its tree, as text
    while True:
        _, first, index = np.unique(answers, return_index=True, return_inverse=True)
        known_classes = set(index[list(asked)])
        new = [int(element) for number, element in enumerate(first) if number not in known_classes]
        if not new or len(asked) == TREES:
            break
        element = min(new)
        try:
            order = discover(partial(ask, element=element), comm.size, dtype)
        except NotATree as error:
            asked[element] = None, f"no order: {error}"
        else:
            text = (
                f"{order.kind}, of {len(order.parts)} parts"
                if isinstance(order, NoOrder)
                else expression(order)
            )
            asked[element] = None if isinstance(order, NoOrder) else order, text
    checks = []
    for seed in range(VERIFIED):
        vectors = _all_numbers(seed, comm.size, n, dtype)
        comm.bcast(vectors)
        checks.append((vectors, total(vectors[0])))
    result = []
    for element, (tree, text) in sorted(asked.items()):
        members = np.flatnonzero(index == index[element])
        verified = tree is not None and all(
            evaluate(((0, len(members), tree),), vectors[:, members]).tobytes() == sums[members].tobytes()
            for vectors, sums in checks
        )
        known = (
            named.get(expression(canonical(tree)), ([], [])) if tree is not None and verified else ([], [])
        )
        result.append(OneOrder(_ranges(members), text, verified, *known))
    return result, len(new)


def _ranges(members: np.ndarray) -> list[tuple[int, int]]:
    """Ascending numbers as ranges (first, last)."""
    parts = np.split(members, np.flatnonzero(np.diff(members) > 1) + 1)
    return [(int(part[0]), int(part[-1])) for part in parts]
