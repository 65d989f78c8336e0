"""Sums of a few vectors, element by element, in one pass: the bits of the words that are their definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import _native, exact
from tests.kernels.hard import arrays, bits, exactly, rounded
from tests.rational import BFLOAT16, rational_sum

NAN, INF = np.nan, np.inf
DTYPES = (np.float64, np.float32)
BOTH = pytest.mark.parametrize("dtype", DTYPES)
# Around the length of a block, which is 1024.
LENGTHS = (0, 1, 7, 1023, 1024, 1025, 3000)


def by_words(x, dtype):
    """The exact sums of `x` (p, n) over its first axis."""
    words = exact.zeros(x.shape[1:])
    exact.add(words, x)
    return exact.round(words, np.empty(x.shape[1:], dtype))


def exactly_summed(x):
    out = np.full(x.shape[1:], 7, x.dtype)
    resolved = _native.exact_sum(list(x), out)
    return out, resolved


def narrowed(x, dtype):
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(x, np.float64).astype(dtype)


def spread(seed, sources, n, decades, dtype):
    """Numbers of both signs whose magnitudes span twice as many powers of ten, some of which cancel."""
    rng = np.random.default_rng(seed)
    x = narrowed(
        rng.standard_normal((sources, n)) * 10.0 ** rng.integers(-decades, decades + 1, (sources, n)), dtype
    )
    if sources > 2:
        x[-1, ::3] = -x[0, ::3]
    return x


@st.composite
def columns(draw):
    """What is added to make one element, as hard as can be, in float64 and float32."""
    x = draw(arrays(max_size=12))
    return x if len(x) else np.zeros(1)


@given(columns())
def test_one_element_is_its_sum_correctly_rounded(x):
    assert bits(exactly_summed(x[:, None])[0]) == bits([rounded(exactly(x))])
    x = narrowed(x, np.float32)
    if np.isfinite(x).all():
        assert bits(exactly_summed(x[:, None])[0]) == bits([rounded(exactly(x), np.float32)])


@given(columns(), st.integers(-60, 60))
def test_ties_and_their_neighbours(x, power):
    """A number, half a unit of its last place, and next to nothing: only all three together say where to round."""
    x = np.clip(x[:1], -1e308, 1e308)
    half = np.spacing(x) / 2
    for rest in (0.0, 5e-324, -5e-324, 1e-300 * 2.0**power, *(half * 2.0**-55), *(-half * 2.0**-70)):
        column = np.array([*x, *half, rest, *(half * 2.0**-53), *(-half * 2.0**-53)])[:, None]
        assert bits(exactly_summed(column)[0]) == bits([rounded(exactly(column))])


def test_ties_in_float32_that_float64_would_hide():
    one, half = np.float32(1), np.float32(2.0**-24)
    for rest in (2.0**-80, -(2.0**-80), 2.0**-149, 0.0):
        for other in (one, np.float32(1 + 2.0**-23), -one):
            column = np.array([other, half, rest], np.float32)[:, None]
            assert bits(exactly_summed(column)[0]) == bits([rounded(exactly(column), np.float32)])


@BOTH
@pytest.mark.parametrize("decades", (0, 3, 30, 300))
@pytest.mark.parametrize("sources", (1, 2, 3, 4, 8, 17))
def test_exact_vectors_have_the_bits_of_words(sources, decades, dtype):
    decades = decades if dtype == np.float64 else decades // 10
    for n in LENGTHS:
        x = spread([sources, n], sources, n, decades, dtype)
        assert bits(exactly_summed(x)[0]) == bits(by_words(x, dtype))


@BOTH
def test_ordinary_numbers_need_no_words(dtype):
    for sources in (2, 4, 8):
        x = spread(sources, sources, 5000, 0, dtype)
        assert exactly_summed(x)[1] == 0


def test_what_is_uncertain_is_noticed():
    x = np.array([[1.0, 1.0, 1e300, INF], [2.0**-53, 1.0, -1e300, 1.0], [2.0**-120, 0.0, 1e-300, 0.0],
                  [2.0**-300, 0.0, 0.0, 0.0]])  # fmt: skip
    total, resolved = exactly_summed(x)
    assert total.tolist() == [1 + 2.0**-52, 2.0, 1e-300, INF]
    assert 1 <= resolved <= 2


@BOTH
def test_exact_special_values(dtype):
    most = np.finfo(dtype).max
    cases = {
        (NAN, 1, 2): NAN, (INF, 1, -INF): NAN, (INF, 1, INF): INF, (-INF, 3, 4): -INF, (-0.0, -0.0, -0.0): 0.0,
        (most, most, -most): most, (most, most, 0): INF, (-most, -most, 0): -INF, (most, -most, -0.0): 0.0,
    }  # fmt: skip
    x = np.array(list(cases), dtype).T.copy()
    assert bits(exactly_summed(x)[0]) == bits(np.array(list(cases.values()), dtype))
    for value in (NAN, -NAN, INF, -INF, -0.0, 1.0):
        one = np.full((1, 3), value, dtype)
        assert bits(exactly_summed(one)[0]) == bits(by_words(one, dtype))


@BOTH
def test_the_result_may_lie_where_a_source_does(dtype):
    x = spread(5, 3, 3000, 20, dtype)
    x[:, 5] = NAN  # an element that is added by words, from sources that must not be gone
    for q in range(3):
        sources = [row.copy() for row in x]
        _native.exact_sum(sources, sources[q])
        assert bits(sources[q]) == bits(by_words(x, dtype))


def test_orders_do_not_matter():
    x = spread(6, 8, 2000, 20, np.float64)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(8)
        assert bits(exactly_summed(x[order])[0]) == bits(exactly_summed(x)[0])


def test_sources_that_do_not_fit_are_refused():
    x, out = np.zeros((3, 4)), np.zeros(4)
    for bad in ([x[0], x[1, :3]], [x[0], x[1].astype(np.float32)], [np.zeros(8)[::2]]):
        with pytest.raises(TypeError, match="type and the length of the result"):
            _native.exact_sum(bad, out)
    with pytest.raises(ValueError, match="at least one source"):
        _native.exact_sum([], out)


@pytest.mark.parametrize("dtype", [np.dtype("float16"), BFLOAT16], ids=str)
def test_narrow_sums_are_rational_sums_rounded_once(dtype):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 1 << 16, (4, 3000), dtype=np.uint16).view(dtype)  # infinities and NaN among them
    x[2:] = rng.choice([0, 1, -1], (2, 3000)) * rng.choice([2.0**-24, 2.0**-12, 1, 100], (2, 3000))
    for column in ([np.inf], [-np.inf], [np.nan], [-np.inf, np.inf], [-0.0], [6e4, 6e4], [-6e4, -6e4, 6e4]):
        x[:, 0] = 0
        x[: len(column), 0] = column
        total = exactly_summed(x)[0]
        assert bits(total[:1]) == bits(rational_sum(x[:, 0]))
    assert bits(total) == bits(np.concatenate([rational_sum(row) for row in x.T]))
