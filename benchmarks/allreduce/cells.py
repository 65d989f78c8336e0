"""Cells of a measurement: an ordering or the library itself with a vector length; its data, its call, its memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kernels.numbers import numbers
from kernels.allreduce import Reduction
from kernels.allreduce.execution.expansion import PARTS
from kernels.guarantees import ChoiceError

MIXED = "mixed"
CHUNK = 1 << 16  # elements
LIBRARY = "bare"  # in place of an ordering: the bare blocking call of the MPI library
SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class Cell:
    """An ordering in an accumulation ("direct in exact"), or LIBRARY; vectors of `count` elements, `nbytes` in all."""

    ordering: str
    count: int
    nbytes: int


def number_of_bytes(text: str) -> int:
    """`4M` as 4194304: K, M and G are powers of 1024. Raises ChoiceError."""
    digits = text.strip().upper().removesuffix("B").removesuffix("I")
    suffix = digits[-1:] if digits[-1:] in ("K", "M", "G") else ""
    try:
        value = float(digits.removesuffix(suffix)) * SUFFIXES[suffix]
        if value < 1 or value != int(value):
            raise ValueError
    except (ValueError, OverflowError):
        raise ChoiceError(
            f"{text!r} is not a number of bytes: write 1 or more, with K, M or G after it as in 64K"
        ) from None
    return int(value)


def sizes(least: int, most: int, factor: float, itemsize: int) -> list[int]:
    """Bytes of the vectors: `least`, `factor` times `least` and so on, and `most`; each has at least one element.

    Raises ChoiceError for impossible limits or factors.
    """
    if least > most:
        raise ChoiceError(
            f"--min-bytes {least} is more than --max-bytes {most}: choose sizes from small to large"
        )
    if not factor > 1:
        raise ChoiceError(f"--factor {factor:g}: choose more than 1, the ratio of one size to the previous")
    lengths, size = [], float(least)
    while size < most:
        lengths.append(size)
        size *= factor
    return sorted({max(1, int(nbytes) // itemsize) * itemsize for nbytes in [*lengths, most]})


def shuffled(cells: Sequence[Cell], seed: int, turn: int) -> list[Cell]:
    """The cells in the order of round `turn`: shuffled lengths, with shuffled orderings in each length.

    So ratios compare neighbours in time, and no ordering always follows the same other one. Depends on the arguments
    alone, so all ranks get the same order.
    """
    rng = np.random.default_rng([seed, turn])
    lengths = sorted({cell.count for cell in cells})
    rng.shuffle(lengths)
    result = []
    for length in lengths:
        group = [cell for cell in cells if cell.count == length]
        result += [group[i] for i in rng.permutation(len(group))]
    return result


def contributions(
    seed: int, rank: int, length: int, dtype: np.dtype, operation: str, distribution: str = MIXED
) -> np.ndarray:
    """The numbers (length,) of one rank: by default floating-point numbers of mixed size, so that the order of sums
    changes bits; else from a distribution of `benchmarks.kernels.numbers`, drawn in chunks. `cancelling` numbers cancel
    between an even rank and the next.

    A shorter vector is the beginning of a longer one.
    """
    if dtype.kind == "i" or operation == "prod" or distribution == MIXED:
        rng, scales = (np.random.default_rng([seed, rank, stream]) for stream in range(2))
        if dtype.kind == "i":
            return rng.integers(-3, 4, length).astype(dtype)
        if operation == "prod":  # products of many stay in range
            return rng.uniform(0.9, 1.1, length).astype(dtype)
        return np.ldexp(rng.standard_normal(length), scales.integers(-4, 5, length)).astype(dtype)
    pairs = distribution == "cancelling"
    chunks = [
        numbers(
            "wide" if pairs else distribution,
            CHUNK,
            dtype,
            np.random.default_rng([seed, rank & -2 if pairs else rank, at]),
        )
        for at in range(0, max(length, 1), CHUNK)
    ]
    x = np.concatenate(chunks)[:length]
    return -x if pairs and rank % 2 else x


@contextmanager
def prepared(comm, cell: Cell, data: np.ndarray, asked, plan: Callable) -> Iterator[tuple[Callable, Any]]:
    """(call, reducer or None): `call()` makes one all-reduce of the cell and returns the total (count,).

    `data` holds this rank's contributions for the longest vector; the cell's are its beginning. Collective.
    """
    own = data[: asked.contributions * cell.count].reshape(asked.contributions, cell.count)
    if cell.ordering == LIBRARY:
        yield library_call(comm, own, asked.op), None
        return
    with plan(comm, reduction(cell.ordering, cell.count, asked), **extras(comm, cell.ordering, asked)) as r:
        yield partial(r, own), r


def library_call(comm, own: np.ndarray, op: str) -> Callable[[], np.ndarray]:
    """The call of a plain program: NumPy combines several contributions, then `Allreduce`."""
    from kernels.allreduce.execution.library import FOLDS, OPS

    total = np.empty(own.shape[1:], own.dtype)
    send = own[0] if len(own) == 1 else np.empty_like(total)
    reduce, fold = comm.Allreduce, FOLDS[op]

    def one():
        reduce(send, total, OPS[op])
        return total

    def several():
        fold(own, 0, None, send)
        reduce(send, total, OPS[op])
        return total

    return one if len(own) == 1 else several


def reduction(name: str, count: int, asked) -> Reduction:
    """The reduction of a label; a label without an accumulation has that of the options."""
    reduction_ = Reduction.named(name, count, asked.dtype, operation=asked.op)
    if reduction_.accumulation == "working":
        reduction_ = replace(reduction_, accumulation=asked.accumulate)
    return replace(reduction_, nodes=asked.nodes) if "nodes" in reduction_.entry.needs else reduction_


def extras(comm, name: str, asked) -> dict:
    """The arguments of `plan` for this rank, besides the reduction."""
    first = comm.rank * asked.contributions
    blocks = range(first, first + asked.contributions)
    return {"blocks": blocks} if "owners" in Reduction.named(name).entry.needs else {}


def context(name: str, size: int, asked) -> dict:
    """The context of the ordering's schedule: owners of blocks, and nodes of ranks."""
    owners = tuple(rank for rank in range(size) for _ in range(asked.contributions))
    known = {"owners": owners, "nodes": asked.nodes, "packing": None}  # the packing is read from its file
    return {need: known[need] for need in Reduction.named(name).entry.needs}


def schedule(name: str, size: int, count: int, asked):
    """The schedule of an ordering among `size` ranks; None for the library and orderings without a schedule."""
    if name == LIBRARY or not Reduction.named(name).entry.scheduled:
        return None
    return reduction(name, count, asked).schedule(size, **context(name, size, asked))


def memory(name: str, rank: int, size: int, count: int, itemsize: int, asked) -> int:
    """Bytes that one rank needs at least to measure this ordering with vectors of `count` elements."""
    vectors = asked.contributions + 2  # beside the contributions, one in and the total
    if name.endswith(" in exact"):
        vectors += 2 * PARTS * 8 // itemsize
    schedule_ = schedule(name, size, count, asked)
    scratch = 0
    if schedule_ is not None:
        written = {
            (m.slot, m.chunk) for current in schedule_.program(rank) for m in current.receives if m.slot > 0
        }
        bounds = (schedule_.bounds(count, chunk) for _, chunk in written)
        scratch = sum(stop - start for start, stop in bounds)
    elif name == "arrival" and rank == 0:
        scratch = (size - 1) * count
    return (vectors * count + scratch) * itemsize


def available(meminfo: Path = Path("/proc/meminfo"), group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes of memory that processes of this node may still allocate, or None where the system does not say."""
    amounts = []
    try:
        lines = dict(line.split(":") for line in meminfo.read_text().splitlines())
        amounts.append(int(lines["MemAvailable"].split()[0]) * 1024)
    except (OSError, KeyError, ValueError):
        pass
    try:
        most = int((group / "memory.max").read_text())
        taken = int((group / "memory.current").read_text())
        kinds = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        amounts.append(
            most - taken + int(kinds["inactive_file"])
        )  # the system drops cached files when it needs memory
    except (OSError, KeyError, ValueError):  # no limit is the word "max"
        pass
    return min(amounts, default=None)
