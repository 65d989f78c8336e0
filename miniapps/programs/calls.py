"""One reduction as a program asks for it, checked: contributions, an operation, and where the total goes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mpi4py import MPI

from kernels.guarantees import ChoiceError
from miniapps.programs.messages import Message, message, same_memory
from miniapps.programs.operations import operation_of, rounding

Blocks = int | Sequence[int] | np.ndarray | None  # global numbers of contributions


@dataclass(slots=True)
class Asked:
    """The arguments of `name`, a reduction of a communicator of `size` ranks, of which this is `rank`. `parts`: what a
    rank gets of the total: all of it (""), one of equal parts ("equal"), or `counts[rank]` elements ("counted")."""

    name: str
    sendbuf: Any
    recvbuf: Any
    op: Any
    rank: int
    size: int
    root: int | None = None
    axis: int | None = None
    blocks: Blocks = None
    parts: str = ""
    counts: Any = None

    @property
    def in_place(self) -> bool:
        """Whether the receive buffer has the contribution; mpi4py takes None as MPI.IN_PLACE."""
        return self.sendbuf is None or self.sendbuf is MPI.IN_PLACE

    @property
    def rows(self) -> bool:
        """Whether the rows of the send buffer are the contributions."""
        return self.axis == 0 or (self.blocks is not None and np.ndim(self.blocks) == 1)

    @property
    def receives(self) -> bool:
        """Whether this rank gets anything."""
        return self.root is None or self.root == self.rank


@dataclass(slots=True)
class Call:
    """`contributions` (k, n) are combined over all ranks by `operation`, and `out` takes the
    total, or this rank's part of it; None on ranks that get nothing. `blocks`: the global numbers of the contributions;
    None where the program names none. `rows`: whether they were passed as rows. `bounds`: of a reduce-scatter, where
    each rank's part begins, and the last ends."""

    name: str
    operation: str
    contributions: Any
    out: Any
    blocks: tuple[int, ...] | None = None
    rows: bool = False
    bounds: tuple[int, ...] | None = None

    @property
    def n(self) -> int:
        """Elements of a contribution."""
        return int(self.contributions.shape[1])


def call_of(asked: Asked) -> Call:
    """The reduction that is asked for; of numbers that do not round the operation is "": any order has the same bits.

    Raises TypeError, ValueError or ChoiceError for what is not understood; the classes are those of mpi4py where it
    refuses, too.
    """
    name, rows = asked.name, asked.rows
    if asked.axis not in (None, 0):
        raise ChoiceError(
            f"{name}: axis={asked.axis!r}: the first axis counts the contributions; pass axis=0"
        )
    send, out, bounds = _parted(asked) if asked.parts else whole(asked)
    operation = operation_of(asked.op) if rounding(send.dtype) else ""
    if operation is None:
        raise ChoiceError(
            f"{name}: the operation is the program's own, and its order the MPI library's; ours are sum, prod, min, "
            f"max. Where it rounds nothing, say so: wrap(comm, exact_ops=[op]); otherwise call comm.plain.{name}"
        )
    made = Call(
        name,
        operation,
        _aligned(send.rows() if rows else send.array.reshape(1, -1)),
        out,
        None if asked.blocks is None else tuple(int(block) for block in np.atleast_1d(asked.blocks)),
        rows,
        bounds,
    )
    if made.blocks is not None and len(made.blocks) != len(made.contributions):
        raise ValueError(
            f"{name}: {len(made.blocks)} numbers of blocks for {len(made.contributions)} contributions"
        )
    return _of_real_parts(made) if send.dtype.kind == "c" else made


def said_of(asked: Asked, call: Call | None, failure: Exception | None) -> str:
    """What is asked for in words, the same on ranks that ask for the same."""
    if call is None or failure is not None:
        return f"{type(failure).__name__}: {failure}"
    said = f"{call.operation or 'an operation'} of {call.contributions.dtype} x {call.n}"
    said += f" in parts {call.bounds}" if call.bounds is not None else ""
    return said + (f" to rank {asked.root}" if asked.root is not None else "")


def whole(asked: Asked) -> tuple[Message, Any, None]:
    """What is sent, and where the whole total goes."""
    name, in_place = asked.name, asked.in_place
    out = message(asked.recvbuf, f"{name}: recvbuf", writable=True) if asked.receives else None
    if in_place and asked.rows:
        raise ChoiceError(f"{name}: rows and their total differ in shape; pass both, not MPI.IN_PLACE")
    if in_place and out is None:
        raise TypeError(f"{name}: MPI.IN_PLACE where no total is received; pass this rank's array")
    send = out if in_place else message(asked.sendbuf, f"{name}: sendbuf", rows=asked.rows)
    assert send is not None
    _require_no_axis_of_integers(asked, send)
    if out is not None:
        _require_same_type(name, send, out)
        n = send.rows().shape[1] if asked.rows else send.array.size
        if out.array.size != n:
            raise ValueError(
                f"{name}: recvbuf has {out.array.size} elements, and a contribution {n}"
                + ("" if asked.rows else "; where rows are contributions, pass axis=0")
            )
    return send, None if out is None else out.array, None


def _parted(asked: Asked) -> tuple[Message, Any, tuple[int, ...]]:
    """What is sent, where this rank's part of the total goes, and where the parts begin."""
    name, size = asked.name, asked.size
    equal, in_place = asked.parts == "equal", asked.in_place
    if in_place and asked.rows:
        raise ChoiceError(f"{name}: rows and their total differ in shape; pass both, not MPI.IN_PLACE")
    out = message(asked.recvbuf, f"{name}: recvbuf", blocks=size if equal and in_place else 1, writable=True)
    send = out
    if not in_place:
        blocks = size if equal and not asked.rows else 1
        send = message(asked.sendbuf, f"{name}: sendbuf", rows=asked.rows, blocks=blocks)
    _require_no_axis_of_integers(asked, send)
    if send is not out:
        _require_same_type(name, send, out)
        in_place = same_memory(send.array, out.array)
    n = send.rows().shape[1] if asked.rows else send.array.size
    counts = (out.count,) * size if equal else _counts(name, asked.counts)
    if len(counts) != size or min(counts) < 0:
        raise ValueError(
            f"{name}: recvcounts {list(counts)}: {size} numbers are needed, none of them negative"
        )
    if sum(counts) != n:
        raise ValueError(f"{name}: parts of {list(counts)} elements, and a contribution of {n}")
    own = counts[asked.rank]
    if not in_place and not equal and out.array.size != own:
        raise ValueError(
            f"{name}: recvbuf has {out.array.size} elements, and recvcounts[{asked.rank}] is {own}"
        )
    bounds = (0, *np.cumsum(counts, dtype=np.int64).tolist())
    return send, out.array[:own], bounds


def _counts(name: str, counts: Any) -> tuple[int, ...]:
    """How many elements each rank gets, as integers."""
    if counts is None:
        raise TypeError(f"{name}: in place recvcounts are needed; pass how many elements each rank gets")
    if not np.iterable(counts):
        raise TypeError(f"{name}: recvcounts is {counts}; pass a number for each rank")
    return tuple(operator.index(count) for count in counts)


def _require_no_axis_of_integers(asked: Asked, send: Message) -> None:
    if not rounding(send.dtype) and (asked.axis is not None or asked.blocks is not None):
        raise ChoiceError(
            f"{asked.name}: axis and blocks are for floating-point numbers, not for {send.dtype}"
        )


def _require_same_type(name: str, send: Message, out: Message) -> None:
    if out.dtype != send.dtype:
        raise ValueError(f"{name}: recvbuf is {out.dtype}, and sendbuf {send.dtype}")


def _aligned(contributions: Any) -> Any:
    """Contributions at addresses that their type may have."""
    aligned = getattr(contributions.flags, "aligned", True)
    return contributions if aligned else contributions.copy()


def _of_real_parts(call: Call) -> Call:
    """The sum of complex numbers as that of their parts."""
    if call.contributions.dtype.itemsize > 16:
        raise ChoiceError(f"{call.name}: {call.contributions.dtype} is not added here; pass complex128")
    if call.operation != "sum":
        raise ChoiceError(
            f"{call.name}: complex numbers can be added here, and no {call.operation} of them taken"
        )
    real = np.dtype(f"f{call.contributions.dtype.itemsize // 2}")
    contributions = call.contributions.reshape(-1).view(real).reshape(len(call.contributions), 2 * call.n)
    return replace(
        call,
        contributions=contributions,
        out=None if call.out is None else call.out.view(real),
        bounds=None if call.bounds is None else tuple(2 * bound for bound in call.bounds),
    )
