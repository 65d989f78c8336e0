"""Judges from the sizes of the numbers whether rounding explains a difference (docs/reference/trace.md#sizes).

The amplification of a difference d is A = |d| / (u S), with the unit roundoff u of the type and the sum S of the
absolute values of all added numbers, over ranks and elements (for a product: of the totals). The verdict:

| contributions | A | verdict |
|---|---|---|
| equal as a set, and no order changes the total: whole numbers, logical operations, an exact sum | any | not rounding |
| equal as a set | at most 2 (P - 1) | rounding: any two orders of P numbers lie so near (Higham 2002, equation 4.4) |
| equal as a set | more | not rounding |
| not equal, or not recorded | at most FEW | rounding: a few units in the last place |
| not equal | above MOST, unless the numbers may be left over from larger ones that cancelled | not rounding |
| not equal, or not recorded | between | open |

Up to four numbers are compared one by one. For more, the signed sums are compared: the difference of such a sum is at
most the sum of |d|. So A is a lower bound, and "not rounding" is certain. The root mean square of these differences
estimates the norm of d, and must not exceed FEW for the verdict "rounding". Of a sample all this holds for its numbers
alone: the sentence says so, and the verdict is never "rounding".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from kernels.sizes import UNITS, sampled
from miniapps.untrusted.text import printable

ROUNDING, NOT_ROUNDING, OPEN = "rounding", "not rounding", "open"
FEW = (
    4.0  # units up to which sums over a few ranks and vectorised partial sums differ; a bug of 2^-50 makes 8
)
MOST = 2.0**40  # more additions, or a larger factor of cancellation, are assumed not to occur
LEFT_OVER = 2.0**-20  # times the largest recorded number: smaller numbers may be left over from cancellation
KEPT = 4  # numbers that sizes keep one by one
ADDED_UP = ("sum", "prod")
EXTREMES = ("max", "min")
PAIRED = ("minloc", "maxloc")  # of a value and its index; the smallest index decides between equal values
# MPI's types of a value and an index, by the type of the value; their sizes are those of the values.
PAIRS = {
    "MPI_DOUBLE_INT": "float64", "MPI_2DOUBLE_PRECISION": "float64", "MPI_FLOAT_INT": "float32",
    "MPI_2REAL": "float32", "MPI_LONG_DOUBLE_INT": "longdouble", "MPI_LONG_INT": "", "MPI_SHORT_INT": "",
    "MPI_2INT": "", "MPI_2INTEGER": "",
}  # fmt: skip
UNKNOWN = (
    "",
    "of the program",
    "user operation",
)  # what operations with unknown properties are called, or begin with


@dataclass(frozen=True)
class Size:
    """The sizes of one array: a row of the table `sizes`."""

    dtype: str
    count: int
    l1: float
    largest: float
    p: tuple[float, float, float, float]
    sample: int = 1  # above 1: of one block of 64 numbers among so many

    @property
    def nan(self) -> bool:
        """True if one of its numbers is NaN."""
        return self.count > 0 and math.isnan(self.l1)

    @property
    def finite(self) -> bool:
        """True if the array has numbers, and none is NaN or infinite."""
        return self.count > 0 and all(map(math.isfinite, (self.l1, self.largest, *self.p)))

    @property
    def unit(self) -> float | None:
        """The unit roundoff of its type; None for other types than floating-point numbers."""
        return UNITS.get(self.dtype)


@dataclass(frozen=True)
class Judgement:
    """A judgement whether rounding explains a difference.

    `verdict` is ROUNDING, NOT_ROUNDING or OPEN; `amplification` is A of the difference, None if unknown; `why` is a
    clause with the numbers."""

    verdict: str
    amplification: float | None
    why: str


@dataclass(frozen=True)
class Sum:
    """A reduction in two runs: its operation, type and guarantee, as traces state them, and both numbers of ranks."""

    operation: str
    dtype: str
    guarantee: str
    ranks: tuple[int, int]

    @property
    def unknown(self) -> bool:
        """Whether nothing is known of the operation, as of a user's."""
        return not self.operation or self.operation.startswith(tuple(filter(None, UNKNOWN)))

    @property
    def words(self) -> str:
        """`sum of float64`."""
        return f"{self.operation or 'operation'} of {self.dtype or 'an unknown type'}"


@dataclass(frozen=True)
class Given:
    """The contributions to one reduction in both runs.

    `sides` has a Size for each contribution, by run. `equal` is True if both runs have the same contributions, bit for
    bit and in any order; None if they were not recorded in both."""

    sides: tuple[tuple[Size, ...], tuple[Size, ...]] = ((), ())
    equal: bool | None = None

    @property
    def known(self) -> bool:
        """True if every contribution of both runs has finite sizes."""
        return all(self.sides) and all(size.finite for side in self.sides for size in side)

    @property
    def nan(self) -> bool:
        """True if a contribution of either run has a NaN."""
        return any(size.nan for side in self.sides for size in side)

    @property
    def most(self) -> int:
        """The larger number of contributions of both runs."""
        return max(map(len, self.sides))


def of_total(a: Size | None, b: Size | None, how: Sum, given: Given, largest: float) -> Judgement:
    """Judges whether rounding explains that the total of a reduction is `a` in one run and `b` in the other.

    `largest` is the largest floating-point number that either run recorded."""
    if given.equal:
        return _of_equal(a, b, how, given)
    order = "" if given.nan else order_cannot(how, a, b)
    prefix = f"no order changes the {how.words}{order}, so what the ranks gave differs: " if order else ""
    if how.dtype not in UNITS and how.dtype:
        return Judgement(OPEN, None, f"{prefix}{_whole(how.dtype)}")
    if how.unknown and how.operation:
        return Judgement(OPEN, None, f"nothing is known of the {how.operation}")
    if how.operation not in ADDED_UP or not given.known:
        what = "" if how.operation not in ADDED_UP else "; the sizes of the contributions are not known"
        return _prefixed(of_local(a, b), prefix, what)
    scales = None if how.operation == "prod" else [_by_element(side) for side in given.sides]
    return _prefixed(_among(a, b, scales, largest), prefix)


def of_local(a: Size | None, b: Size | None) -> Judgement:
    """Judges whether rounding explains that a rank computed numbers `a` in one run and `b` in the other.

    Their inputs are unknown, so a large difference stays open."""
    return _among(a, b, None, math.inf)


def of_moved(a: Size | None, b: Size | None) -> Judgement:
    """The judgement of data that changed without a computation: never rounding."""
    return Judgement(
        NOT_ROUNDING, _amplification(a, b), "nothing was computed in between, so nothing was rounded"
    )


def rearranged(a: Size, b: Size) -> bool:
    """True if two arrays may consist of the same numbers in another order."""
    n = a.count
    return _alike(a, b) and n > KEPT and a.largest == b.largest and abs(a.l1 - b.l1) <= 2.0**-52 * n * a.l1


def _of_equal(a: Size | None, b: Size | None, how: Sum, given: Given) -> Judgement:
    """The judgement of a total whose contributions have equal bits."""
    amplification = None if a is None or b is None else _amplification(a, b, _scales(how, given))
    if how.unknown:
        return Judgement(
            OPEN, amplification, f"the contributions are equal, and the {how.words} may depend on their order"
        )
    if how.operation in PAIRED and PAIRS.get(how.dtype):
        return _of_equal_pairs(a, b, how, given)
    if how.operation in EXTREMES and how.dtype in UNITS:
        if a is None or b is None or given.nan or not (a.finite and b.finite):
            return Judgement(OPEN, None, f"a NaN among the numbers makes the {how.words} depend on the order")
        if amplification == 0:
            return Judgement(
                ROUNDING,
                0.0,
                f"zeros of both signs are equal, and the {how.words} takes the one it meets first",
            )
    if reason := order_cannot(how, a, b):
        return Judgement(
            NOT_ROUNDING, amplification,
            f"the contributions have equal bits, and no order changes the {how.words}{reason}",
        )  # fmt: skip
    if not how.dtype or amplification is None or not given.known:
        return Judgement(
            OPEN,
            amplification,
            "the contributions have equal bits, but their sizes are unknown or not finite",
        )
    bound = 2.0 * max(given.most - 1, 0)
    words = f"the difference is {_units(amplification)}, and any two orders of {given.most} contributions"
    if amplification <= bound * (1 + 1e-9):
        return Judgement(ROUNDING, amplification, f"{words} lie up to {bound:g} apart")
    return Judgement(NOT_ROUNDING, amplification, f"{words} lie at most {bound:g} apart")


def _of_equal_pairs(a: Size | None, b: Size | None, how: Sum, given: Given) -> Judgement:
    """The judgement of a MINLOC or MAXLOC of floating-point values whose contributions have equal bits."""
    if a is None or b is None or not all(given.sides):
        return Judgement(
            OPEN,
            None,
            f"the values were not measured, and with a NaN the {how.words} is decided by the library",
        )
    if given.nan or a.nan or b.nan:
        return Judgement(
            OPEN, None,
            f"there is a NaN among the values: MPI does not say which pair the {how.words} then takes; the library's "
            "rule decides, by the pair that it meets first",
        )  # fmt: skip
    zeros = [x == y == 0 for x, y in zip(a.p[: a.count], b.p, strict=False)]
    if a.count > KEPT or any(zeros):
        few = "there is a zero among them" if a.count <= KEPT else "there may be zeros among them"
        return Judgement(
            OPEN, None,
            f"{few}: zeros of both signs are equal, the smallest index decides between them, and the {how.words} may "
            "have the sign of the other; all other pairs are the same in any order",
        )  # fmt: skip
    reason = order_cannot(how, a, b)
    return Judgement(
        NOT_ROUNDING, None, f"the contributions have equal bits, and no order changes the {how.words}{reason}"
    )


def order_cannot(how: Sum, a: Size | None, b: Size | None) -> str:
    """The reason why no order of equal contributions changes this reduction, as the end of a clause; empty: one can."""
    if how.unknown:
        return ""
    if how.operation in PAIRED:
        nan = (a and a.nan) or (b and b.nan)
        return "" if nan else ", where the smallest index decides between equal values"
    if how.operation not in (*ADDED_UP, *EXTREMES):
        return ", which is rounded nowhere"
    if how.dtype and how.dtype not in UNITS:
        return ", which is not rounded"
    if how.operation in EXTREMES:
        return "" if not (a and b and a.finite and b.finite) else ", which is one of the numbers"
    if how.guarantee == "exact":
        return " under the guarantee exact, which rounds once"
    if how.guarantee == "layout" or (how.guarantee == "run" and how.ranks[0] == how.ranks[1]):
        return f" under the guarantee {how.guarantee}, which fixes it"
    return ""


def _whole(dtype: str) -> str:
    """What rounding can do to numbers of a type that is not rounded."""
    if PAIRS.get(dtype):
        return "an index is not rounded, but the values may be, and values that lie near one another change places"
    return "whole numbers are not rounded, but may count or choose by rounded ones"


def _among(
    a: Size | None, b: Size | None, scales: list[tuple[float, ...]] | None, largest: float
) -> Judgement:
    """The judgement of numbers with unequal contributions.

    The difference is compared with the sizes `scales` of the contributions; None: with the sizes of `a` and `b`."""
    if a is None or b is None:
        return Judgement(OPEN, None, "the sizes of the numbers were not recorded in both runs")
    if a.count and b.count and a.unit is None:
        return Judgement(OPEN, None, _whole(a.dtype))
    amplification = _amplification(a, b, scales)
    if amplification is None:
        return Judgement(
            OPEN,
            None,
            "the numbers differ in length, type or sample, or are not finite, so their difference has no size",
        )
    most = max(amplification, _few(a, b, scales))
    words = f"the difference is {_units(amplification)}"
    of = " of the added numbers" if scales else " of the numbers"
    if a.sample > 1:
        of = f"{of} (of a sample: {sampled(a.sample)})"
    if most <= FEW and a.sample > 1:
        return Judgement(
            OPEN, amplification, f"{words}{of}: rounding makes as much; the other numbers were not measured"
        )
    if most <= FEW:
        return Judgement(
            ROUNDING, amplification, f"{words}{of}: rounding makes as much; a bug this small would not show"
        )
    added = max((max(side) for side in scales), default=0.0) if scales else 0.0
    if amplification > MOST and scales and added >= largest * LEFT_OVER:
        return Judgement(
            NOT_ROUNDING, amplification, f"{words}{of}: more than rounding makes before 2^40 additions"
        )
    if most > 2 * amplification and math.isfinite(most):  # an array may differ in one number alone
        words = f"the difference is {_units(amplification).partition(' ')[0]} to {_units(most)}"
    factor = f"{most:.1g}" if math.isfinite(most) else f"{amplification:.1g}"
    only = "the ranks' own partial sums cancel" if scales else "their inputs cancel"
    return Judgement(
        OPEN, amplification,
        f"{words}{of}: it is rounding only if {only} by a factor of {factor}, if they add that many terms, or if the "
        "difference grew before it was recorded",
    )  # fmt: skip


def _amplification(
    a: Size | None,
    b: Size | None,
    scales: list[tuple[float, ...]] | None = None,
    of_sides: Callable[..., float] = max,
) -> float | None:
    """The amplification A of the difference of two arrays, a lower bound above four numbers; None if unknown.

    `scales`: by run, the sum of absolute values for each of up to four numbers, or for all together; by default the
    sums of the arrays. `of_sides` chooses between the sums of the two runs: `max` or `min`."""
    if a is None or b is None or not _alike(a, b):
        return None
    unit = a.unit or 0.0
    differences = [abs(x - y) for x, y in zip(a.p, b.p, strict=True)]
    if a.count > KEPT:
        differences = [max(differences)]
    one, other = scales or [_by_element((size,)) for size in (a, b)]
    sides = [of_sides(pair) for pair in zip(one, other, strict=False)]
    ratios = [
        0.0 if not d else d / (unit * s) if unit * s else math.inf
        for d, s in zip(differences, sides, strict=False)
    ]
    return max(ratios, default=0.0)


def _few(a: Size, b: Size, scales: list[tuple[float, ...]] | None) -> float:
    """An estimate of A with the smaller of both runs' scales; it must be small for the verdict "rounding".

    Above four numbers the root mean square of the differences of the signed sums estimates the difference."""
    if a.count <= KEPT:
        known = _amplification(a, b, scales, min)
        return math.inf if known is None else known
    mean = math.sqrt(sum((x - y) ** 2 for x, y in zip(a.p, b.p, strict=True)) / len(a.p))
    scale = min(side[0] if side else 0.0 for side in scales) if scales else min(a.l1, b.l1)
    unit = a.unit or 0.0
    return (
        mean * math.sqrt(a.count / a.sample) / (unit * scale) if unit * scale else math.inf if mean else 0.0
    )


def _by_element(sizes: tuple[Size, ...]) -> tuple[float, ...]:
    """The sum of absolute values over arrays: for each number if there are at most four, else for all together."""
    if any(size.count > KEPT for size in sizes):
        return (math.fsum(size.l1 for size in sizes),)
    return tuple(
        math.fsum(abs(size.p[i]) for size in sizes) for i in range(max((s.count for s in sizes), default=0))
    )


def _scales(how: Sum, given: Given) -> list[tuple[float, ...]] | None:
    """The scales of a difference: sizes of the contributions for a sum, None (the totals) for another operation."""
    return [_by_element(side) for side in given.sides] if how.operation == "sum" and given.known else None


def _alike(a: Size, b: Size) -> bool:
    same = (a.dtype, a.count, a.sample) == (b.dtype, b.count, b.sample)
    return a.finite and b.finite and same and a.unit is not None


def _units(amplification: float) -> str:
    """`3 units in the last place`, `3e+05 units ...`."""
    if math.isinf(amplification):
        return "infinitely many units in the last place"
    number = f"{amplification:.2g}"
    return f"{number} unit{'' if number == '1' else 's'} in the last place"


def _prefixed(judgement: Judgement, before: str, behind: str = "") -> Judgement:
    return Judgement(
        judgement.verdict, judgement.amplification, printable(f"{before}{judgement.why}{behind}")
    )
