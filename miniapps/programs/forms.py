"""In what form the numbers of a reduction are added, by their type, the operation and the guarantee.

| type | `run` | `layout`, `exact` |
|---|---|---|
| float64, float32 | by the policy | by the policy |
| complex128, complex64 | the same of both parts | the same of both parts |
| float16, bfloat16 | added in float32, rounded at the end | the exact sum, rounded once |

Least and greatest numbers round nothing. Everything else that rounds is refused; what rounds nothing is the library's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import ml_dtypes
import numpy as np

from kernels.allreduce.accumulate import narrowed, order_free, to_odd
from kernels.guarantees import ChoiceError
from miniapps.programs.calls import Call
from miniapps.runner.policy import Policy

BFLOAT16, FLOAT16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
WIDE = (np.dtype(np.float64), np.dtype(np.float32))  # which the library and every accumulation take
NARROW = (FLOAT16, BFLOAT16)
HALF, BELOW = (
    1 << 44,
    (1 << 45) - 1,
)  # of a float64's bits: half a unit of bfloat16, all that bfloat16 has not


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

    @property
    def rounded_at_the_end(self) -> bool:
        """Whether the total of the plan is of a wider type than the contributions."""
        return self.held != self.dtype

    @property
    def looked_at_again(self) -> bool:
        """Whether a total in float64 can lie between two numbers of `dtype` because it was rounded: then what that
        rounding took away decides. A sum of float16 is exact in float64 or beyond the largest."""
        return self.held == np.float64 and self.dtype == BFLOAT16


@dataclass(frozen=True)
class Form:
    """How to add: `ordering` and `accumulation` in type `held`."""

    ordering: str
    accumulation: str
    held: np.dtype


def form_of(call: Call, collective: str, policy: Policy, observed: bool) -> Form | None:
    """The form of a reduction of real numbers; None where the library adds without a promise: where ranks bring no rows
    of their own, and the call is not `observed`. Raises ChoiceError where there is no form."""
    name, operation, dtype = call.name, call.operation, call.contributions.dtype
    ordering, accumulation = policy.of(call.n)
    if ordering == "library":
        if dtype in WIDE and collective == "allreduce" and (call.rows or observed):
            return Form(ordering, accumulation, dtype)
        if not call.rows:
            return None
        require_real(name, operation, dtype, policy.level)
        return Form("direct", "working", np.dtype(np.float32) if dtype in NARROW else dtype)
    require_real(name, operation, dtype, policy.level)
    if operation in ("min", "max"):
        return Form("direct", "working", dtype)  # which rounds nothing
    exactly = order_free(accumulation)
    if exactly and operation == "prod":
        raise ChoiceError(
            f"{name}: a product has no form that is free of order, as guarantee {policy.level!r} would need; add "
            "logarithms, or wrap the communicator with guarantee 'run'"
        )
    if dtype in NARROW and exactly:
        return Form(ordering, "exact", np.dtype(np.float64))
    if dtype in NARROW and accumulation == "working":
        return Form(ordering, accumulation, np.dtype(np.float32))
    return Form(ordering, accumulation, dtype)


def require_real(name: str, operation: str, dtype: np.dtype, level: str) -> None:
    """Raise ChoiceError for numbers that round and have no form here."""
    if dtype not in WIDE and dtype not in NARROW:
        raise ChoiceError(
            f"{name}: {operation} of {dtype.name}: numbers of this type are not added here; the library keeps "
            f"no guarantee, such as {level!r}; pass float64, float32, float16, bfloat16, complex128 or complex64, or "
            f"call comm.plain.{name}"
        )


def undecided(total: np.ndarray) -> np.ndarray:
    """Which of the float64 `total` lie in the middle between two numbers of bfloat16."""
    return (total.view(np.int64) & BELOW == HALF) & np.isfinite(total)


def rounded_once(total: np.ndarray, rest: np.ndarray | None, dtype: np.dtype) -> np.ndarray:
    """A sum, which is `total` and of which `rest` was rounded away, rounded to `dtype`."""
    if rest is not None:
        total = to_odd(total, np.where(np.isfinite(total), rest, 0.0))
    return narrowed(total, dtype) if total.dtype == np.float64 else _of_single(total, dtype)


def _of_single(total: np.ndarray, dtype: np.dtype) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        narrow: np.ndarray = total.astype(dtype)
        return narrow
