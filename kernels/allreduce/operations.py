"""Operations that combine contributions: SUM, PROD, MIN, MAX, or a user's function.

The executor under MPI and the serial simulator use the same operations, so they give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from kernels import _native
from kernels.guarantees import ChoiceError

ELEMENTS = ("float64", "float32", "float16", "bfloat16", "int64")  # that kernels/native/combine.cpp knows


@dataclass(frozen=True)
class Operation:
    """`function(a, b, out)` combines two arrays of one shape and type element by element into a third.

    `out` may be `a` or `b`. `identity(dtype)` is the result of no contributions. If `commutative` is False, only
    orderings that keep the contributions in rank order can be used. `function` must be associative up to rounding.
    `prepare(sources, out)`, optional, takes a whole list: it returns a function without arguments that combines
    `sources` left to right into `out`, which may be one of them, at each call.

    A floating-point zero always becomes +0.0, so that no order of additions shows in the sign of zero.
    """

    name: str
    function: Callable[[np.ndarray, np.ndarray, np.ndarray], object]
    identity: Callable[[np.dtype], object]
    commutative: bool = True
    prepare: Callable[[list[np.ndarray], np.ndarray], Callable[[], None]] | None = None

    def prepared(self, sources: list[np.ndarray], out: np.ndarray) -> Callable[[], None]:
        """Returns a function that combines `sources` (n,) left to right into `out` (n,); plan once, call often."""
        return (self.prepare or partial(_pairwise, self.function))(sources, out)

    def into(self, sources: list[np.ndarray], out: np.ndarray) -> None:
        """Combines `sources` (n,) left to right into `out` (n,), which may be one of them."""
        self.prepared(sources, out)()

    def of(self, sources: list[np.ndarray]) -> np.ndarray:
        """As `into`, in a new array."""
        out = np.empty_like(sources[0])
        self.into(sources, out)
        return out

    def fold(self, contributions: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Combines `contributions` (k, *shape) over axis 0, left to right, into `out` (*shape); k may be 0."""
        if out is None:
            out = np.empty(contributions.shape[1:], contributions.dtype)
        if not len(contributions):
            out[...] = self.identity(out.dtype)
        elif OPERATIONS.get(self.name) is self and out.dtype.name in ELEMENTS:
            _native.combine_rows(self.name, out.dtype.name, np.ascontiguousarray(contributions), out)
        else:
            self.into(
                list(np.ascontiguousarray(contributions).reshape(len(contributions), -1)), out.reshape(-1)
            )
        return out


def _pairwise(function: Callable, sources: list[np.ndarray], out: np.ndarray) -> Callable[[], None]:
    """Applies `function` to two sources at a time; copies a single source."""
    spare = out if len(sources) < 3 else np.empty_like(out)  # `out` may still have to be read

    def combine():
        total = sources[0]
        for source in sources[1:]:
            function(total, source, spare)
            total = spare
        if out.dtype.kind in "iu":
            np.copyto(out, total)
        else:
            np.add(total, out.dtype.type(0), out)

    return combine


def _lowest(dtype: np.dtype) -> object:
    return np.iinfo(dtype).min if dtype.kind in "iu" else dtype.type(-np.inf)


def _highest(dtype: np.dtype) -> object:
    return np.iinfo(dtype).max if dtype.kind in "iu" else dtype.type(np.inf)


def _built_in(name: str, function: np.ufunc, identity: Callable[[np.dtype], object]) -> Operation:
    def prepare(sources, out):
        return _native.Combination(name, out.dtype.name, sources, out)

    return Operation(name, function, identity, prepare=prepare)


SUM = _built_in("sum", np.add, lambda dtype: dtype.type(0))
PROD = _built_in("prod", np.multiply, lambda dtype: dtype.type(1))
MIN = _built_in("min", np.minimum, _highest)
MAX = _built_in("max", np.maximum, _lowest)


def _copying(sources: list[np.ndarray], out: np.ndarray) -> Callable[[], None]:
    (source,) = sources
    return lambda: np.copyto(out, source)


COPY = Operation("copy", np.add, lambda dtype: dtype.type(0), prepare=_copying)  # of one source, bit for bit
OPERATIONS = {o.name: o for o in (SUM, PROD, MIN, MAX)}


def get(operation: str | Operation) -> Operation:
    """The operation of that name, or the given one. Raises ChoiceError, listing the names, for an unknown one."""
    if isinstance(operation, Operation):
        return operation
    if operation not in OPERATIONS:
        raise ChoiceError(
            f"unknown operation {operation!r}: choose one of {', '.join(OPERATIONS)}, or pass a "
            "kernels.allreduce.Operation of your own"
        )
    return OPERATIONS[operation]
