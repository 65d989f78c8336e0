"""Is it rounding? Drawn sums whose roundings and bugs are known: no bug is excused, no rounding accused."""

import math

import numpy as np
import pytest

from analysis.divergence.rounding import (
    FEW,
    NOT_ROUNDING,
    OPEN,
    ROUNDING,
    UNITS,
    Given,
    Size,
    Sum,
    of_local,
    of_moved,
    of_total,
)
from kernels.sizes import sizes

FLOATS = {"float64": np.float64, "float32": np.float32}


def size(array):
    array = np.atleast_1d(array)
    count, ((l1, largest, *p),) = sizes(array.reshape(1, -1))
    return Size(array.dtype.name, count, l1, largest, tuple(p))


def judged(a, b, given_a, given_b, how, largest=1.0):
    """The judgement of the totals `a` and `b` of contributions, arrays by rank."""
    same = sorted(x.tobytes() for x in given_a) == sorted(x.tobytes() for x in given_b)
    given = Given((tuple(map(size, given_a)), tuple(map(size, given_b))), same)
    return of_total(size(a), size(b), how, given, largest)


def drawn(rng, dtype, ranks, length):
    """Contributions of `ranks` ranks, with cancellation or without."""
    rows = rng.standard_normal((ranks, length)) * np.exp2(rng.integers(-30, 30))
    if rng.random() < 0.3:
        rows[-1] = -rows[:-1].sum(0) * (1 + 1e-9 * rng.standard_normal())
    return rows.astype(dtype)


def added(rows, order):
    total = rows[order[0]].copy()
    for row in order[1:]:
        total = (total + rows[row]).astype(rows.dtype)
    return total


@pytest.mark.parametrize("dtype", FLOATS)
def test_no_order_of_equal_contributions_is_accused(dtype):
    rng = np.random.default_rng(1)
    for _ in range(400):
        ranks, length = int(rng.integers(2, 40)), int(rng.choice([1, 3, 4, 5, 100]))
        rows = drawn(rng, FLOATS[dtype], ranks, length)
        a, b = (added(rows, rng.permutation(ranks)) for _ in "ab")
        judgement = judged(a, b, rows, rng.permutation(rows), Sum("sum", dtype, "none", (ranks, ranks)))
        assert judgement.verdict == ROUNDING, judgement


@pytest.mark.parametrize("dtype", FLOATS)
def test_no_order_of_equal_factors_is_accused(dtype):
    rng = np.random.default_rng(2)
    for _ in range(200):
        ranks, length = int(rng.integers(2, 30)), int(rng.choice([1, 4, 20]))
        rows = (1 + rng.random((ranks, length))).astype(FLOATS[dtype])
        a, b = (np.multiply.reduce(rows[rng.permutation(ranks)], 0) for _ in "ab")
        assert judged(a, b, rows, rows, Sum("prod", dtype, "none", (ranks, ranks))).verdict == ROUNDING


def test_a_wrong_total_of_equal_contributions_is_no_rounding_whatever_its_size():
    """A bug in the total itself: what is beyond any order, and what another operation cannot do."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        ranks = int(rng.integers(2, 9))
        rows = drawn(rng, np.float64, ranks, int(rng.choice([1, 4, 50])))
        a = added(rows, np.arange(ranks))
        b = a.copy()
        exponent = rng.integers(1, 44)
        b[0] += np.exp2(-exponent) * np.abs(rows).sum()
        assert judged(a, b, rows, rows, Sum("sum", "float64", "none", (ranks, ranks))).verdict == NOT_ROUNDING


@pytest.mark.parametrize(
    ("operation", "dtype", "guarantee", "ranks", "verdict"),
    [
        ("land", "MPI_C_BOOL", "none", (2, 2), NOT_ROUNDING),
        ("lor", "int32", "none", (2, 2), NOT_ROUNDING),
        ("bxor", "uint64", "none", (2, 2), NOT_ROUNDING),
        ("sum", "int32", "none", (2, 4), NOT_ROUNDING),
        ("prod", "int64", "none", (2, 2), NOT_ROUNDING),
        ("max", "int32", "none", (2, 2), NOT_ROUNDING),
        ("max", "float64", "none", (2, 2), NOT_ROUNDING),
        ("minloc", "MPI_DOUBLE_INT", "none", (2, 2), NOT_ROUNDING),
        ("sum", "float64", "exact", (2, 4), NOT_ROUNDING),
        ("sum", "float64", "layout", (2, 4), NOT_ROUNDING),
        ("sum", "float64", "run", (2, 2), NOT_ROUNDING),
        ("sum", "float64", "run", (2, 4), ROUNDING),
        ("sum", "float64", "none", (2, 2), ROUNDING),
        ("of the program", "float64", "none", (2, 2), OPEN),
        ("", "", "none", (2, 2), OPEN),
    ],
)
def test_operation_type_and_guarantee_are_asked_before_an_order_is_blamed(
    operation, dtype, guarantee, ranks, verdict
):
    kind = np.float64 if dtype in ("float64", "") else np.int32
    rows = np.array([[3], [4]], kind)
    a = np.array([7], kind)
    b = np.nextafter(a, 9) if kind is np.float64 else a + 1
    assert judged(a, b, rows, rows, Sum(operation, dtype, guarantee, ranks)).verdict == verdict


def test_maxima_with_nan_or_zeros_of_both_signs_may_depend_on_the_order():
    how = Sum("max", "float64", "none", (2, 2))
    zeros = np.array([[0.0], [-0.0]])
    assert judged(zeros[0], zeros[1], zeros, zeros, how).verdict == ROUNDING
    nan = np.array([[np.nan], [1.0]])
    assert judged(nan[0], nan[1], nan, nan, how).verdict == OPEN


def paired(values, dtype="MPI_DOUBLE_INT"):
    """The size of pairs with these values, as `fpna run` records it."""
    own = size(np.array(values))
    return Size(dtype, own.count, own.l1, own.largest, own.p)


@pytest.mark.parametrize(
    ("rows", "verdict", "words"),
    [
        ([[3.0], [4.0]], NOT_ROUNDING, "where the smallest index decides between equal values"),
        ([[3.0], [3.0]], NOT_ROUNDING, "where the smallest index decides between equal values"),
        ([[3.0], [np.inf]], NOT_ROUNDING, "where the smallest index decides between equal values"),
        ([[0.0], [-0.0]], OPEN, "zeros of both signs are equal"),
        ([[np.nan], [3.0]], OPEN, "the library's rule decides"),
    ],
)
def test_pairs_of_value_and_index_depend_on_no_order_but_for_nan_and_zeros(rows, verdict, words):
    """Also where the total itself is no NaN: the comparison with one is false either way."""
    given = Given(*[(tuple(map(paired, rows)),) * 2], True)
    how = Sum("minloc", "MPI_DOUBLE_INT", "none", (2, 2))
    judgement = of_total(paired(rows[-1]), paired(rows[-1]), how, given, 1.0)
    assert judgement.verdict == verdict and words in judgement.why, judgement
    other = of_total(paired([3.0]), paired([4.0]), how, Given(*[(tuple(map(paired, rows)),) * 2], False), 1.0)
    assert other.verdict == OPEN and "an index is not rounded, but the values may be" in other.why
    whole = Sum("maxloc", "MPI_2INT", "none", (2, 2))
    integers = Given(((paired([3], "MPI_2INT"),),) * 2, True)
    assert of_total(*[paired([3], "MPI_2INT")] * 2, whole, integers, 1.0).verdict == NOT_ROUNDING


def test_a_nan_among_contributions_is_seen_though_the_maximum_is_none():
    how = Sum("max", "float64", "none", (2, 2))
    rows = np.array([[np.nan], [1.0], [2.0]])
    assert judged(rows[1], rows[2], rows, rows, how).verdict == OPEN


def partial_sums(terms, ranks, chunk=8):
    """What ranks add up of their own terms, as vectorised loops do, in float64."""
    return np.array([[part.sum()] for part in np.array_split(terms, ranks)])


def test_bugs_over_other_rank_counts_are_never_excused_and_roundings_never_accused():
    rng = np.random.default_rng(4)
    told = {True: [], False: []}
    for _ in range(2000):
        bug = bool(rng.random() < 0.5)
        terms = rng.random(int(rng.choice([203, 1001, 4099]))) + 0.5
        cancelling = rng.random() < 0.3
        terms = terms + np.where(np.arange(len(terms)) % 2, 1e8, -1e8) * cancelling
        p, q = rng.choice([1, 2, 3, 4, 8], 2, replace=False)
        one, other = partial_sums(terms, p), partial_sums(terms, q)
        if bug:  # of a relative size of 2^-1 to 2^-48 of all that is added, by one rank
            other[rng.integers(0, q)] += np.exp2(-rng.integers(1, 49)) * np.abs(other).sum()
        a, b = (added(rows, rng.permutation(len(rows))) for rows in (one, other))
        if a == b:
            continue
        verdict = judged(a, b, one, other, Sum("sum", "float64", "none", (p, q)), 1e8).verdict
        told[bug].append(verdict)
    assert ROUNDING not in told[True]
    assert NOT_ROUNDING not in told[False]
    assert told[True].count(NOT_ROUNDING) > 0.1 * len(told[True])
    assert told[False].count(ROUNDING) > 0.5 * len(told[False])


def test_sums_that_are_left_of_larger_numbers_stay_open():
    """A residual, whose digits are those of rounding alone."""
    a, b = np.array([1e-17]), np.array([6.3e-16])
    how = Sum("sum", "float64", "none", (2, 4))
    assert judged(a, b, a[None] / 2, b[None], how, largest=1.0).verdict == OPEN
    assert of_local(size(a), size(b)).verdict == OPEN
    assert (
        judged(a * 1e17, b * 1e17, a[None] * 1e17, b[None] * 1e17, how, largest=1.0).verdict == NOT_ROUNDING
    )


def test_the_guarantee_exact_leaves_rounding_to_the_ranks_own_parts():
    one, other = np.array([[3.0], [4.0]]), np.array([[np.nextafter(7.0, 8)]])
    judgement = judged(one.sum(0), other[0], one, other, Sum("sum", "float64", "exact", (2, 1)))
    assert judgement.verdict == ROUNDING and "what the ranks gave differs" in judgement.why


def test_whole_numbers_and_unknown_sizes_are_left_open():
    assert of_local(size(np.array([3])), size(np.array([4]))).verdict == OPEN
    assert of_local(None, None).verdict == OPEN
    assert of_local(size(np.ones(3)), size(np.ones(4))).verdict == OPEN
    assert of_local(size(np.array([np.inf])), size(np.array([1.0]))).verdict == OPEN
    crafted = Size("float64", 9, -1.0, math.nan, (1.0, 2.0, math.inf, 0.0))
    assert of_local(crafted, crafted).verdict == OPEN
    assert of_moved(None, None).verdict == NOT_ROUNDING


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("count", [1, 4, 5, 1000])
def test_local_values_by_a_unit_in_the_last_place_are_of_the_size_of_rounding(dtype, count):
    x = np.random.default_rng(count).standard_normal(count).astype(dtype)
    y = np.nextafter(x, np.array(9, dtype), dtype=dtype)
    judgement = of_local(size(x), size(y))
    assert judgement.verdict == ROUNDING and 0 < judgement.amplification <= FEW
    y[0] *= 1 + 2.0**-5
    judgement = of_local(size(x), size(y))
    assert judgement.verdict == OPEN or x[0] ** 2 < FEW**2 * UNITS[dtype] * count * 2**10
