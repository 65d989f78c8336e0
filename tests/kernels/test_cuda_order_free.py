"""Order-free sums on the GPU: the bits of their definition in rational numbers, whatever order and launch shape.

They need a device; `test_cuda_on_host.py` runs this file without one.
"""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from kernels import registry
from kernels.sums import cupy as gpu

from .hard import bits, rounded
from .sums import nans

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(bool(gpu.missing()), reason=gpu.missing() or "")]

NAMES = ["binned", "fixed-point", "exact"]
TYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
SHAPES = [(32, 1, 3), (64, 4, 4096), (256, 32, 4096), (1024, 1, 1)]  # block, items, grid
LENGTHS = [0, 1, 31, 257, 3000]


def on_device(x):
    """Arguments for a variant: bfloat16 passes as its bits."""
    import cupy

    if x.dtype.name == "bfloat16":
        return cupy.asarray(x.view(np.uint16)), {"dtype": "bfloat16"}
    return cupy.asarray(x), {}


def shaped(block, items, grid):
    return {"block": block, "items": items, "grid": grid}


def sample(rng, n, dtype):
    """Of any range and scale, half of them with most of it cancelling."""
    decades, shift = rng.choice([0, 3, 20, 36, 300]), rng.choice([0, 0, 970, -960, -1000, -1040, -1070, -130])
    with np.errstate(over="ignore", under="ignore"):
        x = np.ldexp(rng.standard_normal(n) * 10.0 ** rng.integers(-decades, decades + 1, n), shift)
    most = float(ml_dtypes.finfo(dtype).max)
    x = np.clip(x, -most, most)
    if rng.random() < 0.5:
        x[n // 2 : n // 2 * 2] = -x[: n // 2]
    return rng.permutation(x).astype(dtype)


def as_stated(name, terms, wide):
    terms, number = [Fraction(v) for v in terms if v], np.float64 if wide else np.float32
    if not terms or name == "exact":
        return rounded(sum(terms, Fraction(0)), number)
    e = math.frexp(float(max(map(abs, terms))))[1]
    if name == "binned":
        unit = Fraction(2) ** max(40 * (e // 40 - 2), -1074)
    else:
        unit = Fraction(2) ** (e - (84 if wide else 42))
    return rounded(unit * sum(round(v / unit) for v in terms), number)


def two_products(x, y, wide):
    """Both parts of every product; None where one is infinite."""
    p = [a * b for a, b in zip(x.astype(float).tolist(), y.astype(float).tolist(), strict=True)]
    if not all(map(math.isfinite, p)):
        return None
    exactly = [Fraction(float(a)) * Fraction(float(b)) for a, b in zip(x, y, strict=True)]
    return p + [float(e - Fraction(v)) for e, v in zip(exactly, p, strict=True)] if wide else p


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_the_sum_and_the_dot_product_are_those_of_the_definition(name, dtype):
    rng, wide = np.random.default_rng(1), dtype is np.float64
    sums, dots = registry.get("sum", name, "cupy"), registry.get("dot", name, "cupy")
    for n in LENGTHS:
        for shape in SHAPES:
            x, y = sample(rng, n, dtype), rng.standard_normal(n).astype(dtype)
            (on_x, more), (on_y, _) = on_device(x), on_device(y)
            assert bits(sums(on_x, **shaped(*shape), **more)) == bits(
                as_stated(name, x.astype(float).tolist(), wide)
            )
            terms = two_products(x, y, wide)
            if terms is not None:
                assert bits(dots(on_x, on_y, **shaped(*shape), **more)) == bits(as_stated(name, terms, wide))


@pytest.mark.parametrize("where", ["thread", "block", "blocks"])
def test_an_element_of_half_a_unit_that_a_later_one_brings_is_rounded_to_it(where):
    """2**100 brings units of 1, by the same thread, by another of its block, in another block."""
    x, binned = np.zeros(4096), registry.get("sum", "binned", "cupy")
    shape = (32, 128, 1) if where != "blocks" else (32, 1, 4096)
    x[0], x[-64 if where == "thread" else -33], x[-32 if where == "thread" else -1] = (
        0.75,
        2.0**100,
        -(2.0**100),
    )
    for sign in (1, -1):
        for middle in (0.75, 0.5):  # a tie goes to even, which is 0
            x[0] = sign * middle
            assert binned(on_device(x)[0], **shaped(*shape)) == sign * round(middle)


@pytest.mark.parametrize("place", [0, 255, 256, 4000, 16383])
@pytest.mark.parametrize("largest", [0.75, 3.0, 2.0**60, -np.finfo(np.float64).max])
@pytest.mark.parametrize("operation", ["sum", "dot"])
def test_the_unit_of_fixed_point_is_that_of_the_largest_wherever_it_is(operation, largest, place):
    """It is guessed from a part of each segment: one block of 32 threads looks at its first 256 terms."""
    x = np.zeros(16384)
    x[::100] = np.random.default_rng(7).uniform(-0.5, 0.5, len(x[::100]))
    x[place] = largest
    given = [on_device(x)[0]] + ([on_device(np.ones_like(x))[0]] if operation == "dot" else [])
    result = registry.get(operation, "fixed-point", "cupy")(*given, **shaped(32, 512, 1))
    assert bits(result) == bits(as_stated("fixed-point", x[x != 0].tolist(), True))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("operation", ["sum", "dot"])
@pytest.mark.parametrize(
    "x, expected",
    [
        ([np.inf, 1.0], np.inf),
        ([-np.inf, 1e308, 1e308], -np.inf),
        ([1e308, 1e308], np.inf),
        ([1e308, 1e308, -1e308], 1e308),
        ([np.inf, -np.inf], np.nan),
        ([np.nan, 1.0], np.nan),
        ([-0.0, -0.0], 0.0),
        ([5e-324] * 3, 1.5e-323),
    ],
)
def test_ieee_rules(name, operation, x, expected):
    x = np.array(x)
    arrays = [on_device(v)[0] for v in ((x,) if operation == "sum" else (x, np.ones_like(x)))]
    result = registry.get(operation, name, "cupy")(*arrays)
    assert bits(result) == bits(np.float64(expected))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["float64", "float32", "float16", "bfloat16"])
def test_all_nans_give_one_pattern(name, kind):
    x = np.concatenate([np.ones(300, nans(kind).dtype), nans(kind)])
    for turned in (x, x[::-1].copy()):
        for operation, count in (("sum", 1), ("dot", 2), ("norm", 1)):
            arguments, named = on_device(turned)
            result = registry.get(operation, name, "cupy")(*[arguments] * count, **named)
            assert bits(result) == bits(result.dtype.type(np.nan)), operation


def test_a_product_beyond_the_largest_number_is_an_infinity():
    x, y = (on_device(np.array(v))[0] for v in ([1e200, 1.0], [1e200, 1.0]))
    assert [registry.get("dot", name, "cupy")(x, y) for name in NAMES] == [np.inf] * 3


def test_calls_leave_nothing_behind_for_the_next():
    x = sample(np.random.default_rng(5), 3000, np.float64)
    sums = [registry.get("sum", name, "cupy") for name in NAMES]
    first = [total(on_device(x)[0]) for total in sums]
    registry.get("sum", "exact", "cupy")(on_device(x[::-1] * 1e-3)[0])
    assert [total(on_device(x)[0]) for total in sums] == first


@pytest.mark.parametrize("name", NAMES)
def test_a_thread_never_adds_more_than_its_sums_hold(name):
    """Whatever the launch shape asks for: here 20000 elements for each thread of one block."""
    x, _ = on_device(1 + np.random.default_rng(2).random(32 * 20_000))
    variant = registry.get("sum", name, "cupy")
    assert bits(variant(x, block=32, items=10**6, grid=1)) == bits(variant(x))
