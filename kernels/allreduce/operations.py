"""What contributions are combined by: SUM, PROD, MIN, MAX, or a function of the user's.

The executor under MPI and the serial simulator both combine by these, so that they give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernels.guarantees import ChoiceError


@dataclass(frozen=True)
class Operation:
    """`function(a, b, out)` combines two arrays of one shape and type element by element into a third.

    `out` may be `a` or `b`. `identity(dtype)` is the result of no contributions. Where `commutative` is False only
    those orderings can be used that keep the contributions in rank order. `function` must be associative as far as
    rounding allows.
    """

    name: str
    function: Callable[[np.ndarray, np.ndarray, np.ndarray], object]
    identity: Callable[[np.dtype], object]
    commutative: bool = True

    def into(self, sources: list[np.ndarray], out: np.ndarray) -> None:
        """Combine `sources` left to right into `out`, which may be one of them.

        A zero result is +0.0, never -0.0, so that no order of additions shows in the sign of zero.
        """
        total = sources[0]
        spare = (
            np.empty_like(out)
            if len(sources) > 2 and any(np.shares_memory(s, out) for s in sources[2:])
            else out
        )
        for source in sources[1:]:
            self.function(total, source, spare)
            total = spare
        if out.dtype.kind in "iu":
            out[...] = total
        else:
            np.add(total, out.dtype.type(0), out)

    def of(self, sources: list[np.ndarray]) -> np.ndarray:
        """As `into`, in a new array."""
        out = np.empty_like(sources[0])
        self.into(sources, out)
        return out

    def fold(self, contributions: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """`contributions` (k, *shape) combined over axis 0, left to right, into `out` (*shape); k may be 0."""
        if out is None:
            out = np.empty(contributions.shape[1:], contributions.dtype)
        if len(contributions):
            self.into(list(contributions.reshape(len(contributions), -1)), out.reshape(-1))
        else:
            out[...] = self.identity(out.dtype)
        return out


def _lowest(dtype: np.dtype) -> object:
    return np.iinfo(dtype).min if dtype.kind in "iu" else dtype.type(-np.inf)


def _highest(dtype: np.dtype) -> object:
    return np.iinfo(dtype).max if dtype.kind in "iu" else dtype.type(np.inf)


SUM = Operation("sum", np.add, lambda dtype: dtype.type(0))
PROD = Operation("prod", np.multiply, lambda dtype: dtype.type(1))
MIN = Operation("min", np.minimum, _highest)
MAX = Operation("max", np.maximum, _lowest)
OPERATIONS = {o.name: o for o in (SUM, PROD, MIN, MAX)}


def get(operation: str | Operation) -> Operation:
    """The operation of that name, or the one given; ChoiceError, listing the names, for an unknown one."""
    if isinstance(operation, Operation):
        return operation
    if operation not in OPERATIONS:
        raise ChoiceError(
            f"unknown operation {operation!r}: choose one of {', '.join(OPERATIONS)}, or pass a "
            "kernels.allreduce.Operation of your own"
        )
    return OPERATIONS[operation]
