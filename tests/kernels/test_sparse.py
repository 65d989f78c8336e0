"""Sparse products: each variant adds in the order it states, keeps its promise, and refuses what it cannot multiply."""

import doctest
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from kernels import registry
from kernels.sparse import Csr, emulated, native, reference, scipy
from kernels.sparse.orders import ORDERS

from .hard import bits
from .sparse import hard, lanes, matrix, vector

VARIANTS = registry.variants("spmv")
HERE = [v for v in VARIANTS if v.unavailable() is None and v.backend != "cupy"]
TYPES = [np.float64, np.float32]
PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "sparse.md"
each_type = pytest.mark.parametrize("dtype", TYPES)
THREADS = (1, 2, 3, 4)


def named(variants):
    return pytest.mark.parametrize("variant", variants, ids=lambda v: f"{v.name}-{v.backend}")


def product(variant, a, x, **chosen):
    """A x, where every place of y that no row goes to still holds what it held."""
    y = np.full(a.least + 3, 7, a.dtype)
    variant(a, **chosen)(x, y)
    untouched = np.ones(len(y), bool)
    untouched[a.places] = False
    assert (y[untouched] == 7).all()
    return y[a.places]


def stated(a, x, cuts=()):
    """A x, each row a sum in lanes; of a row that is cut before the entries `cuts`, the pieces in order."""
    values, out = x[a.indices], np.zeros(a.m, a.dtype)
    for i in range(a.m):
        begin, end = int(a.indptr[i]), int(a.indptr[i + 1])
        bounds = [begin, *(c for c in cuts if begin < c < end), end]
        pieces = [lanes(a.data, values, b, c) for b, c in pairwise(bounds)]
        out[i] = pieces[0]
        for piece in pieces[1:]:
            out[i] += piece
    return out


def cuts_of(a, pieces):
    """Before which entries the merge path is cut, by walking it item by item."""
    path = [(i, e) for i in range(a.m) for e in (*range(a.indptr[i], a.indptr[i + 1]), None)]
    length = -(-len(path) // pieces)
    return [path[k][1] for k in range(length, len(path), length) if path[k][1] is not None]


# ---- the sums


@each_type
def test_a_row_is_added_in_lanes(dtype):
    a = hard(dtype)
    x = vector(a.columns, dtype)
    expected = bits(stated(a, x))
    assert bits(product(reference.csr, a, x)) == expected
    for threads in THREADS:
        assert bits(product(native.csr, a, x, threads=threads)) == expected


@each_type
@pytest.mark.parametrize("seed", range(4))
def test_threads_do_not_enter_the_bits(dtype, seed):
    """Enough work that every thread has some."""
    a = matrix(np.random.default_rng(seed).integers(0, 40, 4000), 900, dtype, seed)
    x = vector(900, dtype, seed)
    expected = bits(product(reference.csr, a, x))
    assert all(bits(product(native.csr, a, x, threads=threads)) == expected for threads in THREADS)


@each_type
def test_pieces_of_a_cut_row_are_added_in_order(dtype):
    a = hard(dtype)
    x = vector(a.columns, dtype)
    for threads in (1, 2, 3, 4, 7):
        expected = bits(stated(a, x, cuts_of(a, threads)))
        assert all(bits(product(native.merge, a, x, threads=threads)) == expected for _ in range(3))


def test_more_pieces_than_items():
    a = matrix([2, 0, 5], 9)
    x = vector(9)
    for threads in range(1, 14):
        expected = bits(stated(a, x, cuts_of(a, threads)))
        assert bits(product(native.merge, a, x, threads=threads)) == expected


def test_only_cut_rows_follow_the_number_of_pieces():
    """The row of 4000 is cut by every number of threads above 1, the short ones beside it by none."""
    a = matrix([5, 4000, 5], 4000, seed=3)
    x = vector(4000)
    products = [product(native.merge, a, x, threads=threads) for threads in THREADS]
    assert len({bits(y[1]) for y in products}) > 1
    assert len({bits(y[[0, 2]]) for y in products}) == 1


@each_type
def test_scipy_adds_left_to_right(dtype):
    a = hard(dtype)
    x = vector(a.columns, dtype)
    expected = np.zeros(a.m, dtype)
    with np.errstate(all="ignore"):
        np.add.at(expected, a.row_of_entries(), a.data * x[a.indices])
    assert bits(product(scipy.library, a, x)) == bits(expected)


@named([v for v in HERE if v.name.startswith("coo")])
@each_type
def test_any_order_of_a_row_is_within_its_error_bound(variant, dtype):
    """gamma_n sum |a x|, with n - 1 additions after one rounding of each product (Higham 2002, section 3.1)."""
    a = matrix(np.random.default_rng(2).integers(0, 90, 300), 200, dtype)
    x = vector(200, np.float64).astype(dtype)
    unit = np.finfo(dtype).eps / 2
    for call in range(3):
        y = product(variant, a, x, threads=call + 1)
        for i in range(a.m):
            row = slice(a.indptr[i], a.indptr[i + 1])
            factors = a.data[row].tolist(), x[a.indices[row]].tolist()
            terms = [Fraction(d) * Fraction(v) for d, v in zip(*factors, strict=True)]
            n = len(terms)
            bound = n * unit / (1 - n * unit) * float(sum(map(abs, terms)))
            tiny = n * float(np.finfo(dtype).smallest_subnormal)  # products that underflow
            assert abs(Fraction(float(y[i])) - sum(terms)) <= bound + tiny


# ---- orders of arrival


@each_type
def test_an_emulated_order_is_that_of_its_seed_and_call(dtype):
    a = matrix([40, 300, 7, 0, 90] * 20, 400, dtype)
    x = vector(400, dtype)

    def calls(seed):
        y, p, results = np.empty(a.m, dtype), emulated.coo(a, seed=seed), []
        for _ in range(4):
            p(x, y)
            results.append(bits(y))
        return results

    assert calls(3) == calls(3)
    assert len(set(calls(3) + calls(4))) == 8


def test_an_emulated_order_moves_warps_and_keeps_what_is_in_them():
    """Two warps in one row have two orders, and with one in flight one: from the first entry to the last."""
    a = matrix([64], 50, np.float32)
    x = vector(50, np.float32)
    orders = [np.arange(64), np.roll(np.arange(64), 32)]
    expected = []
    for order in orders:
        total = np.zeros(1, np.float32)
        np.add.at(total, np.zeros(64, int), (a.data * x[a.indices])[order])
        expected.append(bits(total))
    assert {bits(product(emulated.coo, a, x, seed=seed)) for seed in range(20)} == set(expected)
    assert {bits(product(emulated.coo, a, x, seed=seed, resident=1)) for seed in range(20)} == {expected[0]}


# ---- where rows go


@named([v for v in HERE if v.name != "coo-atomic"])
@each_type
def test_rows_go_to_their_places(variant, dtype):
    places = np.random.default_rng(5).permutation(900)[:610].astype(np.int32)
    plain = matrix(np.random.default_rng(6).integers(0, 40, 610), 300, dtype)
    mapped = Csr(plain.indptr, plain.indices, plain.data, plain.columns, places)
    x = vector(300, dtype)
    for threads in THREADS:
        assert bits(product(variant, mapped, x, threads=threads)) == bits(
            product(variant, plain, x, threads=threads)
        )


@named(HERE)
@each_type
@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0], [1], [0, 3, 0]])
def test_matrices_with_little_in_them(variant, dtype, lengths):
    a = matrix(lengths, 4, dtype)
    for rows in (None, np.arange(len(lengths), dtype=np.int32)[::-1].copy()):
        placed = Csr(a.indptr, a.indices, a.data, 4, rows)
        x = np.full(4, 0.5, dtype)
        y = product(variant, placed, x, threads=2)
        assert np.allclose(y, stated(a, x)) and not np.signbit(y[a.indptr[1:] == a.indptr[:-1]]).any()


# ---- uncommon numbers


@named(HERE)
@each_type
def test_values_that_are_not_finite_flow_into_their_rows_alone(variant, dtype):
    inf, nan = np.inf, np.nan
    dense = np.array([[1, 2, 0], [0, inf, 0], [0, inf, -inf], [nan, 0, 1], [0, 0, 4]], dtype)
    stored = dense != 0
    indptr = np.concatenate([[0], np.cumsum(stored.sum(1))])
    a = Csr(indptr, np.nonzero(stored)[1].astype(np.int32), dense[stored], 3)
    for x, expected in (([1, 1, 1], [3, inf, nan, nan, 4]), ([0, inf, 0], [inf, inf, nan, nan, 0])):
        y = product(variant, a, np.array(x, dtype))
        assert np.array_equal(y, np.array(expected, dtype), equal_nan=True)


@named(HERE)
@each_type
def test_a_row_of_negative_zeros_is_zero(variant, dtype):
    a = Csr(np.array([0, 3, 8]), np.zeros(8, np.int32), np.full(8, -0.0, dtype), 1)
    assert bits(product(variant, a, np.ones(1, dtype))) == bits(np.zeros(2, dtype))


# ---- what it costs


def test_bytes_and_operations():
    a = Csr(np.array([0, 2, 3]), np.array([0, 5, 5], np.int32), np.ones(3), 9)
    p = native.csr(a)
    assert (p.flops, p.nbytes) == (6, 3 * 8 + 3 * 4 + 3 * 8 + (2 + 2) * 8)
    mapped = native.csr(Csr(a.indptr, a.indices, a.data.astype(np.float32), 9, np.array([4, 1], np.int32)))
    assert mapped.nbytes == 3 * 4 + 3 * 4 + 3 * 8 + (2 + 2) * 4 + 2 * 4


# ---- what is said of it


def test_the_example_of_the_page_prints_what_it_says():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried and not failed


# ---- what is refused


def test_every_order_is_registered_with_its_promise():
    assert {v.name for v in VARIANTS} == set(ORDERS)
    assert all((v.guarantee, v.why) == (ORDERS[v.name].guarantee, ORDERS[v.name].why) for v in VARIANTS)


GOOD = dict(
    indptr=np.array([0, 1, 3]),
    indices=np.array([0, 1, 2], np.int32),
    data=np.ones(3),
    columns=3,
    rows=np.array([1, 0], np.int32),
)


@pytest.mark.parametrize(
    "change, error, message",
    [
        (dict(indptr=np.array([0, 1, 3], np.int32)), TypeError, "indptr is <i4, expected .* int64"),
        (dict(indices=[0, 1, 2]), TypeError, "indices is list, expected a NumPy array of int32"),
        (dict(data=np.ones(3, np.float16)), TypeError, "data is <f2, expected .* float64 or float32"),
        (dict(data=np.ones(3, ">f8")), TypeError, "data is >f8"),
        (dict(data=np.ones((3, 1))), ValueError, r"data has shape \(3, 1\), expected a vector"),
        (dict(data=np.ones(6)[::2]), ValueError, "data has shape .* contiguous"),
        (dict(indptr=np.zeros(0, np.int64)), ValueError, "indptr is empty"),
        (dict(indptr=np.array([1, 2, 3])), ValueError, r"indptr\[0\] is 1, expected 0"),
        (dict(indptr=np.array([0, 4, 3])), ValueError, "row 1 would have entries 4 ... 3"),
        (dict(data=np.ones(2)), ValueError, "data has 2 elements, but indptr ends with 3"),
        (dict(indices=np.zeros(4, np.int32)), ValueError, "indices has 4 elements, but indptr ends with 3"),
        (dict(columns=2), IndexError, r"row 1 has an entry in column 2 \(entry 2\), but there are 2 columns"),
        (dict(indices=np.array([0, 1, -1], np.int32)), IndexError, "row 1 has an entry in column -1"),
        (dict(columns=-1), ValueError, "-1 columns"),
        (dict(rows=np.array([0, 1])), TypeError, "rows is <i8, expected .* int32"),
        (dict(rows=np.array([0], np.int32)), ValueError, "rows has 1 elements, expected one for each of 2"),
        (dict(rows=np.array([0, -2], np.int32)), IndexError, r"rows\[1\] is -2"),
        (dict(rows=np.array([3, 3], np.int32)), ValueError, r"rows 0 and 1 both go to y\[3\]"),
    ],
)
def test_a_matrix_that_does_not_fit_is_refused(change, error, message):
    Csr(**GOOD)
    with pytest.raises(error, match=message):
        Csr(**(GOOD | change))


@named(HERE)
def test_vectors_that_do_not_fit_are_refused(variant):
    p = variant(Csr(**GOOD))
    x, y = np.ones(3), np.ones(2)
    p(x, y)
    where = rf"spmv {variant.name} \({variant.backend}\): "
    for wrong, message in (
        ((x[:2], y), where + r"x has shape \(2,\), expected a contiguous vector of 3 or more"),
        ((x, y[:1]), where + r"y has shape \(1,\), .* 2 or more"),
        ((np.ones(6)[::2], y), where + "x has shape"),
        ((x, np.ones((2, 1))), where + "y has shape"),
    ):
        with pytest.raises(ValueError, match=message):
            p(*wrong)
    for wrong in ((x.astype(np.float32), y), (x, y.astype(">f8")), (list(x), y)):
        with pytest.raises(TypeError, match=where + ".* float64, the type of the matrix"):
            p(*wrong)


@pytest.mark.parametrize("wrong", [dict(seed=-1), dict(seed=2**64), dict(resident=-2)])
def test_an_order_that_cannot_be_drawn_is_refused(wrong):
    with pytest.raises(ValueError, match="choose"):
        emulated.coo(Csr(**GOOD), **wrong)


@named([v for v in HERE if v.backend == "native"])
def test_a_negative_number_of_threads_is_refused(variant):
    with pytest.raises(ValueError, match="threads -1: choose 1 to 1024, or 0"):
        variant(Csr(**GOOD), threads=-1)
