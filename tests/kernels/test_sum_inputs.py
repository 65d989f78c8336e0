"""Sums and dot products of uncommon input, as `kernels.sums` documents, for every variant and type."""

import re

import ml_dtypes
import numpy as np
import pytest

from kernels import registry

from .hard import bits
from .sums import HERE, HOST, OPERATIONS, TYPES, factors, in_each_type, named, nans, promising, sample

SWAPPED = {kind: np.dtype(TYPES[kind]).newbyteorder(">") for kind in TYPES}
FAR = ["float64", "float32", "bfloat16"]  # no sum of float16 that fits in memory is beyond float32
REPEATABLE = [v for v in HERE if v.name not in ("omp-atomic", "omp-reduction")]


def total(variant, x):
    """Of the elements as they are: a dot product multiplies them by ones."""
    x = np.asarray(x)
    return variant(*[x, np.ones(len(x), x.dtype)][: OPERATIONS[variant.operation]])


def accumulated(kind, value):
    return np.dtype("float64" if kind == "float64" else "float32").type(value)


@in_each_type(HERE)
def test_nothing_and_zeros_of_any_sign_sum_to_positive_zero(variant, kind):
    for x in ([], [-0.0], [-0.0] * 70, [-0.0] * 5000, [0.0, -0.0], [1.0, -1.0]):
        assert bits(total(variant, np.array(x, TYPES[kind]))) == bits(accumulated(kind, 0.0)), x


@in_each_type(HERE)
@pytest.mark.parametrize("infinity", [np.inf, -np.inf])
def test_infinities_of_one_sign_stay(variant, kind, infinity):
    for n, where in ((1, [0]), (3, [1]), (5000, [0]), (5000, [17, 4000]), (5000, [4999])):
        x = sample(n, kind)
        x[where] = infinity
        assert total(variant, x) == infinity, (n, where)


@in_each_type(HERE)
def test_nan_and_opposite_infinities_give_nan(variant, kind):
    for given in ({0: np.nan}, {4999: np.nan}, {3: np.inf, 4000: np.nan}, {3: np.inf, 70: -np.inf}):
        x = sample(5000, kind)
        for where, value in given.items():
            x[where] = value
        assert np.isnan(total(variant, x)), given


ORDER_FREE = [
    v
    for operation in ("sum", "dot", "norm")
    for v in registry.variants(operation)
    if v.guarantee in ("layout", "exact") and v.backend in HOST and v.unavailable() is None
]


@in_each_type(ORDER_FREE)
def test_a_promise_of_layout_holds_for_nans_too_which_give_one_pattern(variant, kind):
    """Whatever their payloads and signs, wherever they stand, alone, with others or beside infinities."""
    expected = bits(accumulated(kind, np.nan))
    patterns = set()
    for n in (6, 300, 5000):
        places = np.linspace(0, n - 1, 6).astype(int)
        for turn in range(6):
            for count in (1, 2, 6):
                x = np.ones(n, TYPES[kind])
                x[places[:count]] = np.roll(nans(kind), turn)[:count]
                if turn % 2:
                    x[2] = np.inf
                for order in (x, x[::-1]):
                    with np.errstate(invalid="ignore"):
                        patterns.add(
                            bits(variant(order) if variant.operation == "norm" else total(variant, order))
                        )
    if variant.operation != "norm":
        patterns.add(bits(total(variant, np.array([np.inf, 1.0, -np.inf], TYPES[kind]))))
    assert patterns == {expected}


@in_each_type([v for v in HERE if v.operation == "dot"])
def test_zero_times_infinity_is_nan(variant, kind):
    x, y = np.array([1.0, 0.0, 2.0], TYPES[kind]), np.array([1.0, np.inf, 2.0], TYPES[kind])
    assert np.isnan(variant(x, y)) and np.isnan(variant(y, x))


@in_each_type(HERE)
def test_subnormal_numbers_count_in_full(variant, kind):
    """Few enough that every order adds them exactly."""
    least = float(ml_dtypes.finfo(TYPES[kind]).smallest_subnormal)
    bound = {"float64": 2**40, "float32": 2**10, "float16": 2**10, "bfloat16": 2**7}[kind]
    counts = np.random.default_rng(1).integers(-bound + 1, bound, 3000)
    x = (counts * least).astype(TYPES[kind])
    assert bits(total(variant, x)) == bits(accumulated(kind, counts.sum() * least))


@in_each_type(HERE, FAR)
def test_a_sum_beyond_the_largest_number_is_infinite(variant, kind):
    largest = float(ml_dtypes.finfo(TYPES[kind]).max)
    for x in ([largest, largest, 1.0], [1.0, largest, largest], [largest] * 5000):
        assert total(variant, np.array(x, TYPES[kind])) == np.inf
        assert total(variant, -np.array(x, TYPES[kind])) == -np.inf


@in_each_type(HERE, FAR)
def test_partial_sums_beyond_the_largest_number_touch_orders_of_additions_alone(variant, kind):
    x = np.full(16384, ml_dtypes.finfo(TYPES[kind]).max, TYPES[kind])
    x[8192:] *= -1
    result = total(variant, x)
    if variant in promising("layout", "exact"):
        assert bits(result) == bits(accumulated(kind, 0.0))
    else:
        assert not np.isfinite(result)


@in_each_type([v for v in HERE if v.operation == "dot"], FAR)
def test_a_product_beyond_the_largest_number_is_infinite(variant, kind):
    x = np.array([1.0, 2.0 ** (600 if kind == "float64" else 70), 1.0], TYPES[kind])
    assert variant(x, x) == np.inf and variant(-x, x) == -np.inf


@in_each_type(REPEATABLE)
def test_views_are_summed_like_their_copies(variant, kind):
    vectors = factors(variant.operation, 5000, kind)
    read_only = [v.copy() for v in vectors]
    for v in read_only:
        v.flags.writeable = False
    misaligned = [np.frombuffer(b"-" + v.tobytes(), v.dtype, offset=1) for v in vectors]
    assert not any(v.flags.aligned for v in misaligned)
    for views in (
        [v[::2] for v in vectors],
        [v[::-1] for v in vectors],
        [v[7::3] for v in vectors],
        read_only,
        misaligned,
        [v.astype(SWAPPED[kind]) for v in vectors],
    ):
        copies = [np.array(v, TYPES[kind]) for v in views]
        assert bits(variant(*views)) == bits(variant(*copies))


@named(HERE)
def test_other_types_and_shapes_are_refused(variant):
    count = OPERATIONS[variant.operation]
    whose = re.escape(f"{variant.operation} {variant.name!r} ({variant.backend}): ")
    allowed = "convert it to one of float64, float32, float16, bfloat16"
    for kind in (np.int64, np.complex128, np.longdouble, np.bool_, object):
        with pytest.raises(TypeError, match=f"{whose}cannot sum {np.dtype(kind)}: {allowed}"):
            variant(*[np.zeros(3, kind)] * count)
    for shape in ((), (2, 2), (1, 3)):
        with pytest.raises(
            ValueError, match=whose + f"cannot sum an array of shape {re.escape(str(shape))}: one d"
        ):
            variant(*[np.zeros(shape)] * count)


@named([v for v in HERE if "threads" in v.parameters])
def test_a_negative_number_of_threads_is_refused(variant):
    with pytest.raises(
        ValueError, match=re.escape(f"({variant.backend}): threads -1: choose 1 to 1024, or 0")
    ):
        variant(*[np.ones(3)] * OPERATIONS[variant.operation], threads=-1)


FAST = ("lanes", "block-tree", "sptr", "binned", "fixed-point", "exact")


@pytest.mark.slow
@in_each_type([v for v in HERE if v.name in FAST], ["bfloat16"])
def test_more_than_2_to_the_31_elements(variant, kind):
    """Zeros that were never written take no memory. Elements far apart show an index that has lost bits."""
    n = 2**31 + 4099
    x = np.zeros(n, TYPES[kind])
    for where, value in {0: 1.0, 5: 2.0, 2**31 - 1: 4.0, 2**31: 8.0, 2**31 + 64: 16.0, n - 1: 32.0}.items():
        x[where] = value
    expected = {"sum": 63.0, "dot": 1365.0}  # of 1, 2, 4, ..., 32, and of their squares
    assert variant(*[x] * OPERATIONS[variant.operation]) == expected[variant.operation]
