"""Choose how to add the numbers of a reduction, by their type, the operation and the guarantee.

| type | `run` | `layout`, `exact` |
|---|---|---|
| float64, float32 | by the policy | by the policy |
| complex128, complex64 | both parts by the policy | both parts by the policy |
| float16, bfloat16 | added in float32, rounded at the end | the exact sum, rounded once |

Min and max round nothing. Other reductions that round raise ChoiceError; the MPI library does those that round nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numpy as np

from kernels.allreduce.accumulate import order_free
from kernels.guarantees import ChoiceError
from miniapps.programs.calls import Call
from miniapps.runner.policy import Policy

BFLOAT16, FLOAT16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
WIDE = (np.dtype(np.float64), np.dtype(np.float32))  # supported by the MPI library and by every accumulation
NARROW = (FLOAT16, BFLOAT16)


class Signature(NamedTuple):
    """The common properties of calls that share a plan; the same on all ranks. `held`: the type in which numbers are
    added; `dtype`: the type of the contributions."""

    ordering: str
    accumulation: str
    collective: str
    operation: str
    dtype: np.dtype
    held: np.dtype
    n: int
    root: int = 0
    bounds: tuple[int, ...] | None = None


def signature_of(
    call: Call, collective: str, root: int, bounds: tuple[int, ...] | None, policy: Policy, observed: bool
) -> Signature | None:
    """The signature of a reduction of real numbers; None if the MPI library adds without a guarantee, that is, for a
    call without rows that is not `observed`.

    Raises ChoiceError for numbers that cannot be added under the policy's guarantee."""
    form = _form(call, collective, policy, observed)
    if form is None:
        return None
    ordering, accumulation, held = form
    dtype = call.contributions.dtype
    return Signature(ordering, accumulation, collective, call.operation, dtype, held, call.n, root, bounds)


def _form(call: Call, collective: str, policy: Policy, observed: bool) -> tuple[str, str, np.dtype] | None:
    """(ordering, accumulation, the type in which numbers are added)."""
    name, operation, dtype = call.name, call.operation, call.contributions.dtype
    ordering, accumulation = policy.of(call.n)
    if ordering == "library":
        if dtype in WIDE and collective == "allreduce" and (call.rows or observed):
            return ordering, accumulation, dtype
        if not call.rows:
            return None
        require_real(name, operation, dtype, policy.level)
        return "direct", "working", np.dtype(np.float32) if dtype in NARROW else dtype
    require_real(name, operation, dtype, policy.level)
    if operation in ("min", "max"):
        return "direct", "working", dtype  # min and max round nothing
    if order_free(accumulation) and operation == "prod":
        raise ChoiceError(
            f"{name}: guarantee {policy.level!r} is not possible for a product, which depends on the order; "
            "add logarithms, or wrap the communicator with guarantee 'run'"
        )
    if dtype in NARROW and accumulation == "working":
        return ordering, accumulation, np.dtype(np.float32)
    return ordering, accumulation, dtype


def require_real(name: str, operation: str, dtype: np.dtype, level: str) -> None:
    """Raise ChoiceError for floating-point types that this suite cannot add."""
    if dtype not in WIDE and dtype not in NARROW:
        raise ChoiceError(
            f"{name}: {operation} of {dtype.name}: this type is not supported under guarantee {level!r}; pass float64, "
            f"float32, float16, bfloat16, complex128 or complex64, or call comm.plain.{name}"
        )
