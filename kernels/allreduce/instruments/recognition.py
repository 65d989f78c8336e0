"""Which ordering the MPI library's all-reduce really is, told from the bits of its sums.

Random numbers are all-reduced by the library, and each ordering of ours that could be its algorithm is evaluated on the
same numbers. An ordering whose bits differ anywhere is out; those that are left make the same additions. Independently
of that, the library's tree is discovered from sums that count (`kernels.sums.discover`), for every element.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b

import numpy as np

from kernels.allreduce import catalog
from kernels.allreduce.instruments.forced import Forced
from kernels.allreduce.schedules.folding import FOLDS
from kernels.allreduce.schedules.k_nomial import SHAPES
from kernels.allreduce.schedules.ring import CUTS
from kernels.allreduce.tree import of_chunks
from kernels.guarantees import ChoiceError
from kernels.sums.discover import NoOrder, NotATree, discover
from kernels.tree import Tree, canonical, expression, fold

ELEMENTS = 128  # at least so many sums are compared: two orders often give the same
SEEDS = 24  # at least so many for each element
TREES = 16  # of one length, that are discovered
VERIFIED = 4  # seeds on which a discovered tree is evaluated
TRIED: dict[str, tuple] = {  # values of parameters
    "k": (2, 3, 4, 5, 6, 7, 8, 16, 32),
    "fold": tuple(FOLDS),
    "tree": tuple(SHAPES),
    "start": (-1, 0, 1),
    "cut": tuple(CUTS),
}

Total = Callable[[np.ndarray], np.ndarray]  # this rank's contribution (n,) -> the total (n,)


@dataclass(frozen=True)
class OneOrder:
    """The tree of some elements, ranges (first, last), or why there is none; `verified`: its bits are the library's."""

    elements: list[tuple[int, int]]
    tree: str
    verified: bool


@dataclass
class Finding:
    """What the sums of one length told."""

    length: int
    calls: int = 0
    repeats: bool = True  # the same numbers have the same sum in every call
    ranks_agree: bool = True
    orderings: list[str] = field(default_factory=list)  # whose bits these are
    trees: list[OneOrder] = field(default_factory=list)
    more_trees: int = 0  # that were not discovered

    def as_forced(self, what: Forced) -> bool | None:
        """Whether the bits are those of the ordering that is forced; None where it is not known."""
        if what.ordering is None:
            return None
        return self.ranks_agree and short_name(what.ordering) in self.orderings


# Orderings


def candidates(size: int) -> list[str]:
    """All orderings that have a schedule, with all parameters tried; those with fewest parameters first.

    Of the values of k one larger than the number of ranks is tried, as all of them are alike. Orderings over blocks and
    those whose parameters are none of TRIED (the seed of `permuted`) are no library's; segments change no addition.
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


Pieces = tuple[tuple[int, int, Tree], ...]  # first element, element behind the last, their tree


def classes(names: Sequence[str], size: int, n: int, context: dict) -> list[tuple[list[str], Pieces]]:
    """Orderings that make the same additions for a vector of n, and these."""
    by_tree: dict[tuple, tuple[list[str], Pieces]] = {}
    for name in names:
        schedule = catalog.get(name).schedule(size, **context)
        pieces: list[tuple[int, int, Tree]] = []
        texts: list[tuple[int, str]] = []
        for chunk, tree in enumerate(of_chunks(schedule)[0]):
            start, stop = schedule.bounds(n, chunk)
            if start < stop:
                pieces.append((start, stop, tree))
                text = expression(canonical(tree))
                if not texts or texts[-1][1] != text:
                    texts.append((start, text))
        by_tree.setdefault(tuple(texts), ([], tuple(pieces)))[0].append(name)
    return list(by_tree.values())


def evaluate(pieces: Pieces, vectors: np.ndarray) -> np.ndarray:
    """The sum over the rows of `vectors` (p, n) by these additions."""
    total = np.empty_like(vectors[0])
    for start, stop, tree in pieces:
        part = vectors[:, start:stop]
        total[start:stop] = fold(tree, part.__getitem__, lambda terms: terms[0] + terms[1])
    return total


def numbers(seed: int, rank: int, n: int, dtype) -> np.ndarray:
    """The contribution of a rank: of near magnitudes, where another order most often has other bits."""
    rng = np.random.default_rng([seed, rank, n])
    return (rng.standard_normal(n) * 10.0 ** rng.integers(-1, 2, n)).astype(dtype)


# The library


def library(comm, n: int, dtype, call: str) -> tuple[Total, Callable[[], None]]:
    """The library's all-reduce of n numbers, and what frees it. ChoiceError if there is no such call."""
    send, receive = np.empty(n, dtype), np.empty(n, dtype)
    if call == "blocking":

        def run():
            comm.Allreduce(send, receive)

        free = _nothing
    else:
        try:
            request = comm.Allreduce_init(send, receive)
        except NotImplementedError:
            raise ChoiceError(
                "--call persistent: this MPI library has none (it is older than MPI 4)"
            ) from None

        def run():
            request.Start()
            request.Wait()

        free = request.Free

    def total(contribution: np.ndarray) -> np.ndarray:
        send[:] = contribution
        run()
        return receive.copy()

    return total, free


def _nothing() -> None:
    pass


def identify(
    comm,
    n: int,
    dtype="float64",
    call: str = "blocking",
    names: Sequence[str] = (),
    tree: bool = False,
    context: dict | None = None,
) -> Finding:
    """Which of the orderings `names` the library's all-reduce of n numbers is; collective, complete on rank 0 only.

    `tree`: discover the library's tree too, which else is done only where no ordering has its bits.
    """
    finding = Finding(n)
    if n == 0:
        return finding
    total, free = library(comm, n, dtype, call)
    try:
        alive = classes(names, comm.size, n, context or {}) if comm.rank == 0 else []
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
        finding.orderings = [name for each in alive for name in each[0]] if finding.repeats else []
        if comm.bcast(tree or not finding.orderings):
            if comm.rank == 0:
                finding.trees, finding.more_trees = _trees(comm, n, dtype, total)
                comm.bcast(None)
            else:
                while (x := comm.bcast(None)) is not None:
                    total(np.full(n, x[comm.rank]))
    finally:
        free()
    return finding


def _all_numbers(seed: int, size: int, n: int, dtype) -> np.ndarray:
    return np.array([numbers(seed, rank, n, dtype) for rank in range(size)])


def _trees(comm, n: int, dtype, total: Total) -> tuple[list[OneOrder], int]:
    """The trees of all elements, on rank 0, and how many were left out; the other ranks serve.

    A question is p numbers, the same for all elements, so each all-reduce answers for all of them. Elements with equal
    answers to all questions so far form a class; one of each is asked until the classes do not fall apart further.
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
        result.append(OneOrder(_ranges(members), text, verified))
    return result, len(new)


def _ranges(members: np.ndarray) -> list[tuple[int, int]]:
    """Ascending numbers as ranges (first, last)."""
    parts = np.split(members, np.flatnonzero(np.diff(members) > 1) + 1)
    return [(int(part[0]), int(part[-1])) for part in parts]
