"""Accumulations: the types of partial sums, for the schedule of any ordering."""

from dataclasses import replace
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from kernels.allreduce import Reduction, accumulate, catalog
from kernels.allreduce.operations import MAX, SUM
from kernels.allreduce.simulator import simulate, simulate_schedule
from kernels.guarantees import ChoiceError
from tests.kernels.hard import bits, exactly, rounded
from tests.order_free import defined

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TYPES = [np.dtype(t) for t in ("float64", "float32", "float16")] + [BFLOAT16]
ORDERINGS = ("linear", "direct", "ring", "recursive-doubling", "binomial")


def reduced(name, ordering, contributions):
    """The total on every rank, by that accumulation over the schedule of that ordering."""
    dtype, shape = contributions[0].dtype, contributions[0].shape[1:]
    a = accumulate.get(name, dtype)
    words = []
    held = [accumulate.get(name, dtype) for _ in contributions]  # each rank has its own
    for own, x in zip(held, contributions, strict=True):
        words.append(np.empty(int(np.prod(shape)) * a.width, a.travels))
        own.load(x, words[-1])
    schedule = catalog.get(ordering).schedule(len(contributions))

    def whole_elements(n, chunks, chunk):
        return tuple(a.width * b for b in schedule.cut(n // a.width, chunks, chunk))

    totals = []
    cut = replace(schedule, cut=whole_elements)
    for own, w in zip(held, simulate_schedule(cut, [[w] for w in words], a.operation), strict=True):
        totals.append(np.full(shape, 7, dtype))
        own.store(w, totals[-1])
        if name == "exact":
            accumulate.settle(totals[-1], np.concatenate(contributions))
    return totals


def blocks(seed, dtype, ranks=5, shape=(3, 7), decades=2):
    rng = np.random.default_rng(seed)
    counts = [(1, 4, 0, 2, 3)[rank % 5] for rank in range(ranks)]
    return [(rng.standard_normal((k, *shape)) * 10.0 ** rng.integers(-decades, decades, (k, *shape))).astype(dtype)
            for k in counts]  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_working_is_the_ordering_itself(dtype):
    xs = blocks(1, dtype)
    for ordering in ORDERINGS:
        for total, expected in zip(reduced("working", ordering, xs), simulate(ordering, xs), strict=True):
            assert bits(total) == bits(expected)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_float64_is_the_ordering_of_wider_numbers_rounded_once(ordering, dtype):
    xs = blocks(2, dtype)
    wide = simulate(ordering, [x.astype(np.float64) for x in xs])[0]
    for total in reduced("float64", ordering, xs):
        assert bits(total) == bits(accumulate.narrowed(wide, dtype))
    if dtype == np.float64:
        assert bits(total) == bits(simulate(ordering, xs)[0])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_compensated_sums_keep_their_bound(ordering, dtype):
    """Each of K-1 additions is off by at most 3 u^2 / (1 - 4u) of its sum, then the total is rounded once."""
    u = Fraction(1, 2**53 if dtype == np.float64 else 2**24)
    each = 3 * u**2 / (1 - 4 * u)
    last = Fraction(float(ml_dtypes.finfo(dtype).eps)) / 2
    for seed in range(3):
        xs = blocks(seed, dtype)
        total = reduced("compensated", ordering, xs)[0]
        columns = np.concatenate(xs).astype(np.float64).reshape(-1, total.size).T
        for value, column in zip(total.ravel().tolist(), columns, strict=True):
            truth, size = exactly(column), exactly(np.abs(column))
            allowed = ((1 + each) ** (len(column) - 1) - 1) * size
            assert abs(Fraction(value) - truth) <= allowed + last * (abs(truth) + allowed)


def test_compensated_sums_find_what_working_precision_loses():
    xs = [np.array([[v]]) for v in (1.0, 2.0**-60, -1.0, 2.0**-70)]
    assert reduced("compensated", "linear", xs)[0] == [2.0**-60 + 2.0**-70]
    assert reduced("working", "linear", xs)[0] == [2.0**-70]
    xs = [np.array([[v]], np.float16) for v in (2048, 0.5, 0.5, 1)]
    assert reduced("compensated", "linear", xs)[0] == [2050]
    assert reduced("working", "linear", xs)[0] == [2048]


@pytest.mark.parametrize("name", tuple(accumulate.ACCUMULATIONS))
def test_infinities_nan_and_zeros(name):
    inf, nan = np.inf, np.nan
    x = np.array([[inf, -inf, inf, nan], [1, 2, -inf, 3], [0, 5, 1, 1]])
    for total in reduced(name, "direct", [row[None] for row in x]):
        assert bits(np.isnan(total)) == bits([False, False, True, True]) and total[:2].tolist() == [inf, -inf]
    for total in reduced(name, "ring", [np.full((1, 4), -0.0)] * 3) + reduced(
        name, "ring", [np.zeros((0, 4))] * 3
    ):
        assert bits(total) == bits(np.zeros(4))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_exact_sums_have_the_bits_of_their_definition_over_any_schedule(ordering, dtype):
    for decades in (2, 15, 300):
        with np.errstate(over="ignore", under="ignore"):
            xs = blocks(4, dtype, decades=decades)
        for total in reduced("exact", ordering, xs):
            assert bits(total) == bits(defined(np.concatenate(xs)))


def test_exact_sums_promise_more_than_the_ordering():
    guarantees = {name: Reduction("ring", accumulation=name).guarantee for name in accumulate.ACCUMULATIONS}
    assert guarantees == {"working": "run", "float64": "run", "compensated": "run", "exact": "exact"}
    assert Reduction("block-tree", accumulation="compensated").guarantee == "layout"


def test_narrowing_rounds_once():
    """Just above and below the middle of two neighbours, where by way of float32 the middle itself is hit."""
    for dtype, least in ((BFLOAT16, 2.0**-133), (np.dtype("float16"), 2.0**-24)):
        eps = float(ml_dtypes.finfo(dtype).eps)
        for down, step in ((1.0, eps), (1 + eps, eps), (least, least), (0.0, least)):
            for rest in (2.0**-40, -(2.0**-40)):
                value = down + step / 2 * (1 + rest)
                expected = down + step if rest > 0 else down
                got = accumulate.narrowed(np.array([value, -value]), dtype).astype(float)
                assert got.tolist() == [expected, -expected]
    x = np.random.default_rng(1).standard_normal(1000) * 1e-3
    assert bits(accumulate.narrowed(x, np.dtype("float32"))) == bits(
        [rounded(Fraction(v), np.float32) for v in x]
    )


def test_a_pair_is_rounded_once_though_it_fits_no_float64():
    for dtype, tiny in ((BFLOAT16, 2.0**-8), (np.dtype("float16"), 2.0**-11)):  # half a unit of 1: a tie
        a = accumulate.get("compensated", dtype)
        for error, expected in ((2.0**-80, 1 + 2 * tiny), (-(2.0**-80), 1.0)):
            total = np.empty(1, dtype)
            a.store(np.array([1 + tiny, error], np.float32), total)
            assert float(total[0]) == expected


def test_what_is_not_taken_is_named():
    for name, dtype, operation, message in (
        ("double", "float64", SUM, "unknown accumulation 'double': choose one of working, float64"),
        ("compensated", "float64", MAX, "for sums, not for max"),
        ("float64", "int64", SUM, "not int64"),
        ("exact", "int64", SUM, "takes float64, float32, float16, bfloat16, not int64"),
    ):
        with pytest.raises(ChoiceError, match=message):
            accumulate.get(name, dtype, operation)
    assert accumulate.get("working", "int64", MAX).operation is MAX


def test_words_per_element():
    accumulators = {
        (n, d): accumulate.get(n, d) for n in accumulate.ACCUMULATIONS for d in ("float64", "float32")
    } | {("exact", d): accumulate.get("exact", TYPES[i]) for i, d in ((2, "float16"), (3, "bfloat16"))}
    assert {key: (a.width, a.travels.name) for key, a in accumulators.items()} == {
        ("working", "float64"): (1, "float64"), ("working", "float32"): (1, "float32"),
        ("float64", "float64"): (1, "float64"), ("float64", "float32"): (1, "float64"),
        ("compensated", "float64"): (2, "float64"), ("compensated", "float32"): (2, "float32"),
        ("exact", "float64"): (3, "float64"), ("exact", "float32"): (2, "float64"),
        ("exact", "float16"): (1, "float64"), ("exact", "bfloat16"): (2, "float64"),
    }  # fmt: skip
