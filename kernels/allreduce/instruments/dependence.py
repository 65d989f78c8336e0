"""What the bits of a library's all-reduce depend on: the same numbers, added again with one condition changed.

Sums are compared bit for bit. A count of compared sums stands beside every answer, also where none differs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from kernels.allreduce.instruments.libraries import Library, Way, numbers
from kernels.guarantees import ChoiceError

CALL, RANK, IN_PLACE, ALIGNMENT = "repeated call", "rank that holds the sum", "call in place", "alignment"
ELEMENT, LENGTH, ORDER = "place in the vector", "length of the vector", "ranks that hold the numbers"
PLACE, COUNT = "placement of ranks", "number of ranks"
ELEMENTS = 256  # sums compared, at least
TRIALS = 8  # vectors, at least
LONGER = 100_000  # elements of the longer vector, at least
FEWEST = 4  # ranks for `number of ranks`: three are the fewest with more than one order

Pair = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Dependence:
    """Of `compared` sums, `differ` have other bits after the condition `on` was changed: on the rank with the most."""

    on: str
    length: int
    compared: int
    differ: int


def dependences(
    library: Library, n: int, dtype: str, call: str = "blocking", of: Collection[str] | None = None
) -> list[Dependence]:
    """For each condition, or for those in `of`, how many sums of n numbers change with it. Collective; the same on all
    ranks. Conditions that the library or the number of ranks does not allow are left out."""
    if n == 0:
        return []
    found = []
    for on, pairs in _conditions(library, n, dtype, Way(call)):
        if of is not None and on not in of:
            continue
        compared = differ = 0
        try:
            for first, second in pairs:
                compared += first.size
                differ += int(np.count_nonzero(_words(first) != _words(second)))
        except ChoiceError:  # an MPI library before MPI 4 has no persistent call
            continue
        found.append(Dependence(on, n, compared, max(library.comm.allgather(differ))))
    return found


def _words(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.dtype.itemsize}")


def _conditions(library: Library, n: int, dtype: str, plain: Way) -> Iterator[tuple[str, Iterator[Pair]]]:
    comm = library.comm
    size, rank = comm.size, comm.rank

    def own(seed: int) -> np.ndarray:
        return numbers(seed, rank, n, dtype)

    def ways(changed: Way, given: Callable[[int], np.ndarray] = own) -> Iterator[Pair]:
        return _both(library, n, dtype, (plain, own), (changed, given))

    yield CALL, ways(plain)
    yield RANK, _ranks(library, n, dtype, plain)
    if library.copies:
        yield IN_PLACE, ways(replace(plain, in_place=True))
    for call in library.calls:
        if call != plain.call:
            yield f"call {call}", ways(replace(plain, call=call))
    yield ALIGNMENT, ways(replace(plain, offset=1))
    if n > 1:
        yield ELEMENT, _elements(library, n, dtype, plain)
    yield LENGTH, _lengths(library, n, dtype, plain)
    if size > 1:
        yield ORDER, ways(plain, lambda seed: numbers(seed, (rank + 1) % size, n, dtype))
    if size > 1 and library.renumbers:
        backwards = replace(plain, ranks=tuple(reversed(range(size))))
        yield PLACE, ways(backwards, lambda seed: numbers(seed, size - 1 - rank, n, dtype))
    if size >= FEWEST:
        yield COUNT, chain(*(_without(library, n, dtype, plain, left_out) for left_out in (0, size - 1)))


def _trials(n: int) -> range:
    return range(max(TRIALS, -(-ELEMENTS // n)))


def _both(library: Library, n: int, dtype: str, first: tuple, second: tuple) -> Iterator[Pair]:
    """The totals of all trials in two ways of calling: each (way, contribution of a trial)."""
    opened = []
    try:
        for way, _ in (first, second):
            opened.append(library.opens(n, dtype, way))
        for seed in _trials(n):
            yield opened[0].total(first[1](seed)), opened[1].total(second[1](seed))
    finally:
        for each in opened:
            each.free()


def _without(library: Library, n: int, dtype: str, plain: Way, left_out: int) -> Iterator[Pair]:
    """The totals of all ranks, of which one contributes zeros, beside those of the others alone."""
    rank = library.comm.rank
    others = replace(plain, ranks=tuple(other for other in range(library.comm.size) if other != left_out))

    def given(seed: int) -> np.ndarray:
        return np.zeros(n, dtype) if rank == left_out else numbers(seed, rank, n, dtype)

    for whole, part in _both(library, n, dtype, (plain, given), (others, given)):
        yield whole, whole if rank == left_out else part


def _ranks(library: Library, n: int, dtype: str, plain: Way) -> Iterator[Pair]:
    """This rank's totals beside those of rank 0."""
    opened = library.opens(n, dtype, plain)
    try:
        for seed in _trials(n):
            total = opened.total(numbers(seed, library.comm.rank, n, dtype))
            yield total, library.comm.bcast(total)
    finally:
        opened.free()


def _elements(library: Library, n: int, dtype: str, plain: Way) -> Iterator[Pair]:
    """Vectors whose elements are all the same number: all totals but the first, beside the first."""
    opened = library.opens(n, dtype, plain)
    try:
        for seed in _trials(n):
            total = opened.total(np.full(n, numbers(seed, library.comm.rank, 1, dtype)[0]))
            yield total[1:], np.full(n - 1, total[0])
    finally:
        opened.free()


def _lengths(library: Library, n: int, dtype: str, plain: Way) -> Iterator[Pair]:
    """All trials in one long vector, beside each of them alone."""
    own = [numbers(seed, library.comm.rank, n, dtype) for seed in _trials(n)]
    rest = numbers(len(own), library.comm.rank, max(1, LONGER - n * len(own)), dtype)
    long = np.concatenate([*own, rest])
    opened = library.opens(len(long), dtype, plain)
    try:
        whole = opened.total(long)
    finally:
        opened.free()
    opened = library.opens(n, dtype, plain)
    try:
        for i, contribution in enumerate(own):
            yield opened.total(contribution), whole[i * n : (i + 1) * n]
    finally:
        opened.free()
