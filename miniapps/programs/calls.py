"""Check the arguments of a reduction: contributions, operation, and the buffer for the total."""

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
    """The arguments of the reduction `name` of a communicator of `size` ranks on rank `rank`. `parts`: the part of the
    total that a rank gets: all (""), one of equal parts ("equal"), or `counts[rank]` elements ("counted")."""

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
        """Whether the receive buffer has the contribution; for mpi4py None means MPI.IN_PLACE."""
        return self.sendbuf is None or self.sendbuf is MPI.IN_PLACE

    @property
    def rows(self) -> bool:
        """Whether the rows of the send buffer are the contributions."""
        return self.axis == 0 or (self.blocks is not None and np.ndim(self.blocks) == 1)

    @property
    def receives(self) -> bool:
        """Whether this rank gets the total or a part of it."""
        return self.root is None or self.root == self.rank


@dataclass(slots=True)
class Call:
    """A checked reduction: combine `contributions` (k, n) of all ranks by `operation` into `out`.

    `out`: the buffer for the total or this rank's part; None on ranks that get nothing. `blocks`: the global numbers of
    the contributions; None if the program gives none. `rows`: whether the program passed rows. `bounds`: for a
    reduce-scatter, the begin of each rank's part, and the end of the last."""

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
    """Checks a reduction. For numbers that do not round, the operation is "": any order gives the same bits.

    Raises TypeError, ValueError or ChoiceError for wrong arguments, in the class that mpi4py raises if it raises, too.
    """
    name, rows = asked.name, asked.rows
    if asked.axis not in (None, 0):
        raise ChoiceError(
            f"{name}: axis={asked.axis!r}: only the first axis can count contributions; pass axis=0"
        )
    send, out, bounds = _parted(asked) if asked.parts else whole(asked)
    operation = operation_of(asked.op) if rounding(send.dtype) else ""
    if operation is None:
        raise ChoiceError(
            f"{name}: the program defines the operation, so only the MPI library can order it; wrapped communicators "
            f"order sum, prod, min and max. If it rounds nothing: wrap(comm, exact_ops=[op]); otherwise call "
            f"comm.plain.{name}"
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
            f"{name}: {len(made.blocks)} numbers of blocks, but {len(made.contributions)} contributions"
        )
    return _of_real_parts(made) if send.dtype.kind == "c" else made


def said_of(asked: Asked, call: Call | None, failure: Exception | None) -> str:
    """A description of the reduction; ranks that make the same call have the same description."""
    if call is None or failure is not None:
        return f"{type(failure).__name__}: {failure}"
    said = f"{call.operation or 'an operation'} of {call.contributions.dtype} x {call.n}"
    said += f" in parts {call.bounds}" if call.bounds is not None else ""
    return said + (f" to rank {asked.root}" if asked.root is not None else "")


def whole(asked: Asked) -> tuple[Message, Any, None]:
    """(send buffer, buffer for the whole total, None)."""
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
                f"{name}: recvbuf has {out.array.size} elements, but a contribution has {n}"
                + ("" if asked.rows else "; if rows are contributions, pass axis=0")
            )
    return send, None if out is None else out.array, None


def _parted(asked: Asked) -> tuple[Message, Any, tuple[int, ...]]:
    """(send buffer, buffer for this rank's part of the total, bounds of the parts)."""
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
        raise ValueError(f"{name}: recvcounts {list(counts)}: pass {size} numbers, none of them negative")
    if sum(counts) != n:
        raise ValueError(f"{name}: the parts have {list(counts)} elements, but a contribution has {n}")
    own = counts[asked.rank]
    if not in_place and not equal and out.array.size != own:
        raise ValueError(
            f"{name}: recvbuf has {out.array.size} elements, but recvcounts[{asked.rank}] is {own}"
        )
    bounds = (0, *np.cumsum(counts, dtype=np.int64).tolist())
    return send, out.array[:own], bounds


def _counts(name: str, counts: Any) -> tuple[int, ...]:
    """How many elements each rank gets, as integers."""
    if counts is None:
        raise TypeError(f"{name}: MPI.IN_PLACE needs recvcounts; pass the number of elements of each rank")
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
        raise ValueError(f"{name}: recvbuf is {out.dtype}, but sendbuf is {send.dtype}")


def _aligned(contributions: Any) -> Any:
    """Contributions at addresses that are aligned for their type."""
    aligned = getattr(contributions.flags, "aligned", True)
    return contributions if aligned else contributions.copy()


def _of_real_parts(call: Call) -> Call:
    """The sum of complex numbers as a sum of real and imaginary parts."""
    if call.contributions.dtype.itemsize > 16:
        raise ChoiceError(f"{call.name}: {call.contributions.dtype} is not supported; pass complex128")
    if call.operation != "sum":
        raise ChoiceError(
            f"{call.name}: {call.operation} of complex numbers is not supported, only their sum; call "
            f"comm.plain.{call.name}"
        )
    real = np.dtype(f"f{call.contributions.dtype.itemsize // 2}")
    contributions = call.contributions.reshape(-1).view(real).reshape(len(call.contributions), 2 * call.n)
    return replace(
        call,
        contributions=contributions,
        out=None if call.out is None else call.out.view(real),
        bounds=None if call.bounds is None else tuple(2 * bound for bound in call.bounds),
    )
