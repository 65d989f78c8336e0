"""In what form the numbers of a reduction are added, by their type, the operation and the guarantee.

| type | `run` | `layout`, `exact` |
|---|---|---|
| float64, float32 | by the policy | by the policy |
| complex128, complex64 | the same of both parts | the same of both parts |
| float16, bfloat16 | added in float32, rounded at the end | the exact sum, rounded once |

Least and greatest numbers round nothing. Everything else that rounds is refused; what rounds nothing is the library's.
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
WIDE = (np.dtype(np.float64), np.dtype(np.float32))  # which the library and every accumulation take
NARROW = (FLOAT16, BFLOAT16)


class Signature(NamedTuple):
    """What calls have in common that one plan serves; the same on all ranks. `held`: the type in which numbers are
    added, `dtype` that of the contributions."""

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
    """How a reduction of real numbers is added; None where the library adds without a promise: where ranks bring no
    rows of their own, and the call is not `observed`. Raises ChoiceError for numbers that cannot be added under the
    policy's guarantee."""
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
        return "direct", "working", dtype  # which rounds nothing
    if order_free(accumulation) and operation == "prod":
        raise ChoiceError(
            f"{name}: a product has no form that is free of order, as guarantee {policy.level!r} would need; add "
            "logarithms, or wrap the communicator with guarantee 'run'"
        )
    if dtype in NARROW and accumulation == "working":
        return ordering, accumulation, np.dtype(np.float32)
    return ordering, accumulation, dtype


def require_real(name: str, operation: str, dtype: np.dtype, level: str) -> None:
    """Raise ChoiceError for numbers that round and have no form here."""
    if dtype not in WIDE and dtype not in NARROW:
        raise ChoiceError(
            f"{name}: {operation} of {dtype.name}: numbers of this type are not added here; the library keeps "
            f"no guarantee, such as {level!r}; pass float64, float32, float16, bfloat16, complex128 or complex64, or "
            f"call comm.plain.{name}"
        )
