"""Accumulations: the numbers in which partial sums are held, sent and added, for every ordering.

An element becomes `width` words of type `travels`, side by side. Schedules move and combine words without knowing their
meaning.

| name | words of an element | error of a sum S of K contributions, before it is rounded once |
|---|---|---|
| `working` | one, of the type itself | every addition rounds |
| `float64` | one float64 | (K-1) 2^-53 sum abs(x), to first order |
| `compensated` | two of the type (narrow types: of float32), sum and error | ((1 + h)^(K-1) - 1) sum abs(x) |
| `exact` | one to three float64 with the same exact sum | none |

h = 3 u^2 / (1 - 4u), with u = 2^-53 for float64 and 2^-24 for narrower types (Joldes, Muller, Popescu 2017), unless a
number overflows or underflows. `exact` adds words without error: a total depends neither on other elements, nor on the
schedule, nor on the owner of each contribution. It is off by at most half a unit in its last place. Infinities and NaN
stay in their element. Numbers of very different size may need more words than there are. Then a mark travels in place
of the words and becomes the total (kernels/native/cascade.hpp). `marked` finds it, and these elements are summed again
as words of `kernels.exact`, which define the bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernels import _native, exact
from kernels.allreduce.operations import ELEMENTS, SUM, Operation
from kernels.guarantees import ChoiceError, known

REAL = ("float64", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Kind:
    """An accumulation for the types in `taken`. `guarantee`: of every ordering in it; None: that of the ordering."""

    summary: str
    taken: tuple[str, ...]
    guarantee: str | None = None


ACCUMULATIONS = {
    "working": Kind("Numbers of the type itself: every addition rounds.", ELEMENTS),
    "float64": Kind("Numbers of type float64, rounded once to the requested type.", REAL),
    "compensated": Kind("Pairs of sum and error: about twice the digits.", REAL),
    "exact": Kind("Sums without error, rounded once: correctly rounded by every ordering.", REAL, "exact"),
}
EXACT_WORDS = {"float64": 3, "float32": 2, "bfloat16": 2, "float16": 1}


@dataclass
class Accumulation:
    """How contributions of type `dtype` are held in words.

    `load(contributions, words)` sums contributions (k, *shape), k >= 0, from left to right into words (n * width,).
    `store(words, total)` rounds the words once, to nearest even, into total (*shape,); zero becomes +0.0.
    """

    name: str
    dtype: np.dtype
    width: int
    travels: np.dtype
    operation: Operation
    load: Callable[[np.ndarray, np.ndarray], None]
    store: Callable[[np.ndarray, np.ndarray], None]


def order_free(name: str) -> bool:
    """Whether sums in the accumulation `name` have the same bits in every order."""
    return ACCUMULATIONS[name].guarantee is not None


def get(name: str, dtype, operation: Operation = SUM) -> Accumulation:
    """Returns the accumulation `name` for contributions of `dtype`.

    Raises ChoiceError for an unknown name, for a type that it does not take, and for operations other than a sum;
    `working` takes every type and operation.
    """
    known("accumulation", name, ACCUMULATIONS)
    dtype = np.dtype(dtype)
    if name == "working":
        return Accumulation(name, dtype, 1, dtype, operation, _fold_with(operation), _store)
    if operation is not SUM:
        raise ChoiceError(f"accumulation {name!r} is for sums, not for {operation.name}: choose 'working'")
    taken = ACCUMULATIONS[name].taken
    if dtype.name not in taken:
        raise ChoiceError(f"accumulation {name!r} takes {', '.join(taken)}, not {dtype}: choose 'working'")
    make = {"float64": _float64, "compensated": _compensated, "exact": _exact}
    return make[name](dtype)


def _fold_with(operation: Operation) -> Callable[[np.ndarray, np.ndarray], None]:
    def load(contributions, words):
        operation.fold(contributions, words.reshape(contributions.shape[1:]))

    return load


def _store(words: np.ndarray, total: np.ndarray) -> None:
    np.copyto(total, words.reshape(total.shape))


def _float64(dtype: np.dtype) -> Accumulation:
    wide = np.dtype(np.float64)

    def load(contributions, words):
        SUM.fold(contributions.astype(wide, copy=False), words.reshape(contributions.shape[1:]))

    def store(words, total):
        np.copyto(total, narrowed(words, dtype).reshape(total.shape))

    return Accumulation("float64", dtype, 1, wide, SUM, load, store)


def _compensated(dtype: np.dtype) -> Accumulation:
    word = np.dtype(np.float64 if dtype == np.float64 else np.float32)

    def prepare(sources, out):
        return lambda: _native.compensated_sum(sources, out)

    def load(contributions, words):
        _native.compensated_load(np.ascontiguousarray(contributions, word), words)

    def store(words, total):
        pairs = words.reshape(-1, 2)
        # Pairs are normalised: the first is the sum of both, rounded.
        value = pairs[:, 0] if dtype == word else narrowed(_summed_to_odd(pairs), dtype)
        np.add(value.reshape(total.shape), dtype.type(0), total)

    operation = Operation("sum", SUM.function, SUM.identity, prepare=prepare)
    return Accumulation("compensated", dtype, 2, word, operation, load, store)


def _exact(dtype: np.dtype) -> Accumulation:
    width = EXACT_WORDS[dtype.name]

    def load(contributions, words):
        _native.expansion_load(np.ascontiguousarray(contributions), width, words)

    def store(words, total):
        _native.expansion_store(words, width, total)

    def prepare(sources, out):
        return lambda: _native.expansion_sum(sources, width, out)

    operation = Operation("sum", SUM.function, SUM.identity, prepare=prepare)
    return Accumulation("exact", dtype, width, np.dtype(np.float64), operation, load, store)


def mark(dtype: np.dtype) -> np.ndarray:
    """One marked element, (1,)."""
    total = np.empty(1, dtype)
    _native.expansion_store(np.array([_native.MARK]), 1, total)
    return total


def marked(total: np.ndarray) -> np.ndarray:
    """The places int64 (m,) in a flat total of `exact` whose sums its words could not hold."""
    return _native.exact_marked(total)


def settle(total: np.ndarray, contributions: np.ndarray) -> None:
    """Replaces marked elements of `total` (*shape,) by the rounded exact sums of contributions (k, *shape)."""
    places = marked(total.reshape(-1))
    if len(places):
        words = exact.zeros(len(places))
        exact.add(words, contributions.reshape(len(contributions), -1)[:, places])
        total.reshape(-1)[places] = exact.round(words, np.empty(len(places), total.dtype))


def narrowed(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Float64 `x` rounded once to `dtype`. NumPy converts to bfloat16 by way of float32; there the first of the two
    steps rounds to odd, so that the second rounds correctly (Boldo, Melquiond 2008).
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if dtype.name != "bfloat16":
            return x.astype(dtype)
        single = x.astype(np.float32)
        return _to_odd(single, x - single).astype(dtype)


def _summed_to_odd(pairs: np.ndarray) -> np.ndarray:
    """The sums of pairs of float32 (n, 2) as float64, rounded to odd where they are not exact."""
    a, b = pairs[:, 0].astype(np.float64), pairs[:, 1].astype(np.float64)
    total = a + b
    return _to_odd(total, (a - total) + b)  # |a| >= |b|: the error is exact (Dekker 1971)


def _to_odd(rounded: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Rounds to odd: replaces an even number with an `error` by its neighbour on the side of the error."""
    integer = np.int32 if rounded.dtype == np.float32 else np.int64
    bits: np.ndarray = rounded.view(integer)
    # Infinity is even and stands for a number too large for the type: its odd neighbour is the largest number.
    inexact = (error != 0) & ~np.isnan(error) & (bits & 1 == 0)
    away = np.where((error > 0) == (bits >= 0), 1, -1).astype(integer)
    odd = np.where(inexact & (rounded != 0), bits + away, bits).view(rounded.dtype)
    least = np.copysign(np.ones(1, integer).view(rounded.dtype), error)
    return np.where(inexact & (rounded == 0), least, odd).astype(rounded.dtype)
