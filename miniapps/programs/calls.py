"""One reduction as a program asks for it, checked: contributions, an operation, and where the total goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
from mpi4py import MPI

from kernels.guarantees import ChoiceError
from miniapps.programs.buffers import Buffer, buffer

OPERATIONS = ((MPI.SUM, "sum"), (MPI.PROD, "prod"), (MPI.MIN, "min"), (MPI.MAX, "max"))
Blocks = int | Sequence[int] | np.ndarray | None  # global numbers of contributions
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Call:
    """`contributions` (k, n) of floating-point numbers are combined over all ranks by `operation`, and `out` takes the
    total: (n,), less where ranks get parts of it, None on ranks that get nothing. `blocks`: the global numbers of the
    contributions; None where the program names none. `rows`: whether they were passed as rows."""

    name: str
    operation: str
    contributions: Any
    out: Any
    blocks: tuple[int, ...] | None = None
    rows: bool = False

    @property
    def n(self) -> int:
        """Elements of a contribution."""
        return int(self.contributions.shape[1])


def call_of(
    name: str,
    sendbuf: Any,
    recvbuf: Any,
    op: MPI.Op,
    axis: int | None = None,
    blocks: Blocks = None,
    *,
    parts: bool = False,
) -> Call | None:
    """The reduction `name(sendbuf, recvbuf, op)`; None where it combines no floating-point numbers, or by an operation
    that rounds nothing and is known to MPI alone: then any order has the same bits. `recvbuf` is None on a rank that
    gets nothing; `parts`: a rank gets a part of the total.

    Raises TypeError, ValueError or ChoiceError for what is not understood.
    """
    if axis not in (None, 0):
        raise ChoiceError(f"{name}: axis={axis!r}: the first axis counts the contributions; pass axis=0")
    rows = axis == 0 or (blocks is not None and np.ndim(blocks) == 1)
    out = None if recvbuf is None else buffer(recvbuf, f"{name}: recvbuf")
    send = out if sendbuf is MPI.IN_PLACE else buffer(sendbuf, f"{name}: sendbuf", rows)
    if send is None:
        raise ChoiceError(f"{name}: MPI.IN_PLACE where no total is received; pass this rank's array")
    if sendbuf is MPI.IN_PLACE and rows:
        raise ChoiceError(f"{name}: rows and their total differ in shape; pass both, not MPI.IN_PLACE")
    operation = operation_of(op)
    if not floating(send.dtype):
        if axis is not None or blocks is not None:
            raise ChoiceError(f"{name}: axis and blocks are for floating-point numbers, not for {send.dtype}")
        return None
    if operation is None:
        raise ChoiceError(
            f"{name}: the operation is the program's own, and its order the MPI library's; ours do "
            f"{', '.join(name for _, name in OPERATIONS)}: call the plain communicator (comm.plain.{name})"
        )
    made = Call(
        name,
        operation,
        send.rows() if rows else send.array.reshape(1, -1),
        None if out is None else out.array,
        None if blocks is None else tuple(int(block) for block in np.atleast_1d(blocks)),
        rows,
    )
    _require_fitting(made, send, out, parts)
    return _of_real_parts(made) if send.dtype.kind == "c" else made


def operation_of(op: MPI.Op) -> str | None:
    """Our name of an operation of MPI; None where it is none of ours."""
    return next((name for known, name in OPERATIONS if op == known), None)


def floating(dtype: np.dtype) -> bool:
    """Whether `dtype` rounds."""
    return dtype.kind in "fc" or dtype == BFLOAT16


def _require_fitting(call: Call, send: Buffer, out: Buffer | None, parts: bool) -> None:
    if call.blocks is not None and len(call.blocks) != len(call.contributions):
        raise ValueError(
            f"{call.name}: {len(call.blocks)} numbers of blocks for {len(call.contributions)} contributions"
        )
    if out is None:
        return
    if out.dtype != send.dtype:
        raise TypeError(f"{call.name}: recvbuf is {out.dtype}, and sendbuf {send.dtype}")
    if not parts and out.array.size != call.n:
        raise ValueError(
            f"{call.name}: recvbuf has {out.array.size} elements, and a contribution {call.n}"
            + ("" if call.rows else "; where rows are contributions, pass axis=0")
        )


def _of_real_parts(call: Call) -> Call:
    """The sum of complex numbers as that of their parts."""
    if call.operation != "sum":
        raise ChoiceError(
            f"{call.name}: complex numbers can be added here, and no {call.operation} of them taken"
        )
    real = np.dtype(f"f{call.contributions.dtype.itemsize // 2}")
    contributions = call.contributions.reshape(-1).view(real).reshape(len(call.contributions), 2 * call.n)
    return replace(call, contributions=contributions, out=None if call.out is None else call.out.view(real))
