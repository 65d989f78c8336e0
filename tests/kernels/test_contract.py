"""Matrix products and row sums: the bits of the definition, however they are cut, laid out, packed and computed."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from kernels.contract import flat, matmul, reference, rowsum
from kernels.contract.native import LEVELS, PIECE
from kernels.guarantees import ChoiceError
from kernels.registry import check, get, variants

from .contract import TYPES, moved, numbers, same, strided
from .hard import rounded

OPERATIONS = (
    "matmul", "conv", "conv_input", "conv_weight", "rowsum", "pointwise", "attention", "attention_backward",
)  # fmt: skip
LENGTHS = [0, 1, 15, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 9]
SHAPES = [(1, 1), (3, 5), (14, 32), (15, 33), (29, 2)]  # a tile, what is more or less, several

each_type = pytest.mark.parametrize("dtype", TYPES)


def factors(dtype, rows, depth, columns, seed=0, **options):
    rng = np.random.default_rng(seed)
    return numbers(rng, dtype, rows, depth, **options), numbers(rng, dtype, depth, columns, **options)


# ---- the definition


@each_type
def test_the_multiply_add_of_the_definition_rounds_once(dtype):
    rng = np.random.default_rng(0)
    a, b, c = (numbers(rng, dtype, 600, decades=6) for _ in range(3))
    c[::2] = -(a * b)[::2]  # nearly all cancels
    c[::4] *= dtype(1 + np.finfo(dtype).eps)
    c[1::8] = a[1::8] * dtype(1e-9)  # half of the last place of the product, or less
    exact = [
        Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)) for x, y, z in zip(a, b, c, strict=True)
    ]
    assert same(reference.fma(a, b, c), np.array([rounded(x, dtype) for x in exact], dtype))


def test_rounding_a_sum_of_float64_once_more_would_be_another_multiply_add():
    a, c = np.float32(1 + 2**-12), np.float32(2.0**-60)  # a a is half way between two numbers of float32
    once = reference.fma(*(np.array([x]) for x in (a, a, c)))[0]
    twice = np.float32(np.float64(a) * np.float64(a) + np.float64(c))
    assert once == np.nextafter(twice, np.float32(2))
    assert all(
        matmul(np.array([[c, a]]), np.array([[np.float32(1)], [a]]), level=level) == once for level in LEVELS
    )


@each_type
def test_a_long_product_is_a_sum_of_pieces(dtype):
    a, b = factors(dtype, 2, 2 * PIECE + 7, 3)
    parts = [reference.matmul(a[:, k : k + PIECE], b[k : k + PIECE]) for k in (0, PIECE, 2 * PIECE)]
    assert same(reference.matmul(a, b), (parts[0] + parts[1]) + parts[2])


# ---- the bits of the kernels


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("depth", LENGTHS)
@each_type
def test_every_instruction_set_has_the_bits_of_the_definition(level, depth, dtype):
    a, b = factors(dtype, 7, depth, 3, decades=5)
    assert same(matmul(a, b, level=level), reference.matmul(a, b))


@pytest.mark.parametrize("level", LEVELS)
@each_type
def test_every_tile_has_the_bits_of_the_definition(level, dtype):
    a, b = factors(dtype, 29, 9, 67)
    whole = reference.matmul(a, b)
    for rows, columns in SHAPES:
        assert same(matmul(a[:rows], b[:, :columns], level=level), whole[:rows, :columns])


@each_type
def test_subnormals_are_kept_and_rounded_once(dtype):
    least = np.finfo(dtype).smallest_normal
    a, b = factors(dtype, 5, 40, 6, decades=0)
    a, b = a * least, b * dtype(1e-3)
    whole = reference.matmul(a, b)
    assert (np.abs(whole) < least).any() and whole.any()
    for level in LEVELS:
        assert same(matmul(a, b, level=level), whole)


def test_flushing_of_subnormals_by_the_caller_changes_nothing():
    a, b = factors(np.float32, 5, 40, 6)
    a = a * np.finfo(np.float32).smallest_normal
    whole = matmul(a, b)
    torch.set_flush_denormal(True)
    try:
        flushed = matmul(a, b), matmul(a, b, threads=2)
    finally:
        torch.set_flush_denormal(False)
    assert all(same(whole, other) for other in flushed)


@each_type
def test_nan_and_infinities_stay_in_their_rows_and_every_nan_is_the_same(dtype):
    a, b = factors(dtype, 20, PIECE + 40, 40, decades=1)
    plain = matmul(a, b)
    a[3, 7], a[5, 2], b[9, 11] = np.inf, -np.nan, np.nan
    a[6, PIECE + 1], a[6, PIECE + 2] = np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        found = matmul(a, b)
    touched = np.zeros(found.shape, bool)
    touched[[3, 5, 6]], touched[:, 11] = True, True
    assert same(found[~touched], plain[~touched])
    assert np.isinf(found[3, [0, 1, 2]]).all()
    nans = found[np.isnan(found)]
    assert len(nans) >= 40 and same(nans, np.full(len(nans), np.nan, dtype))
    assert all(same(matmul(a, b, level=level), found) for level in LEVELS)


@each_type
def test_nothing_to_add_is_plus_zero(dtype):
    assert same(matmul(np.ones((3, 0), dtype), np.ones((0, 2), dtype)), np.zeros((3, 2), dtype))
    assert same(rowsum(np.ones((0, 4), dtype), 0), np.zeros(4, dtype))
    assert same(matmul(-np.zeros((1, 5), dtype), np.ones((5, 1), dtype)), np.zeros((1, 1), dtype))


def test_products_without_elements_are_empty():
    for rows, columns in ((0, 3), (3, 0), (0, 0)):
        assert matmul(np.ones((rows, 4)), np.ones((4, columns))).shape == (rows, columns)
    assert matmul(np.ones((0, 2, 4)), np.ones((0, 4, 3))).shape == (0, 2, 3)


# ---- what bits do not depend on


@pytest.mark.parametrize("b_transposed", [False, True])
@each_type
def test_cuts_of_rows_and_columns_change_no_bit(dtype, b_transposed):
    a, b = factors(dtype, 61, PIECE + 44, 131)
    whole = matmul(a, b)
    if b_transposed:
        b = b.T.copy().T
    rng = np.random.default_rng(1)
    for _ in range(40):
        (i, j), (k, m) = (np.sort(rng.choice(n + 1, 2, replace=False)) for n in whole.shape)
        assert same(matmul(a[i:j], b[:, k:m], threads=int(rng.integers(1, 3))), whole[i:j, k:m].copy())


@each_type
def test_strides_and_addresses_change_no_bit(dtype):
    a, b = factors(dtype, 17, 270, 37)
    whole = matmul(a, b)
    for left in [*strided(a), *(moved(a, k) for k in (1, 3, 5))]:
        for right in [*strided(b), *(moved(b, k) for k in (1, 3, 5))]:
            assert same(matmul(left, right), whole)
    for out in strided(np.zeros_like(whole)):
        assert matmul(a, b, out) is out and same(out.copy(), whole)


@pytest.mark.parametrize("threads", [2, 3, 0])
@each_type
def test_threads_change_no_bit(dtype, threads):
    a, b = factors(dtype, 150, 300, 260)
    assert same(matmul(a, b, threads=threads), matmul(a, b))


@each_type
def test_a_batch_has_the_bits_of_its_matrices(dtype):
    rng = np.random.default_rng(0)
    a, b = numbers(rng, dtype, 2, 3, 9, 20), numbers(rng, dtype, 3, 20, 35)
    heads = numbers(rng, dtype, 2, 9, 3, 20).transpose(0, 2, 1, 3)  # as attention has them: not one stride
    for left in (a, heads):
        for threads in (1, 2):
            c = matmul(left, b, threads=threads)
            assert all(same(c[i, j], matmul(left[i, j], b[j])) for i in range(2) for j in range(3))


def test_a_result_over_its_operands_is_written_last():
    a, b = factors(np.float64, 30, 30, 30)
    whole = matmul(a, b)
    assert same(matmul(a.copy(), b, threads=2), whole)
    for x, y in ((a, b.copy()), (a.copy(), b)):
        out = x if x is a else y
        kept = out.copy()
        matmul(x, y, out)
        assert same(out, whole)
        out[...] = kept


def test_tensors_are_taken_by_their_memory():
    a, b = (torch.from_numpy(x) for x in factors(np.float32, 9, 50, 11))
    out = torch.empty(11, 9).T
    c = matmul(a.requires_grad_(), b, out)
    assert c is out and not c.requires_grad
    assert same(c.numpy().copy(), matmul(a.detach().numpy(), b.numpy()))
    assert isinstance(matmul(a, b), torch.Tensor) and matmul(a, b).data_ptr() % 16 == 0


# ---- row sums


@pytest.mark.parametrize(
    "shape, dims", [((5, 700), 1), ((700, 5), 0), ((2, 70, 9), (0, 1)), ((3, 4, 5), (0, -1)), ((90,), 0)]
)
@each_type
def test_row_sums_have_the_bits_of_the_definition(dtype, shape, dims):
    x = numbers(np.random.default_rng(0), dtype, *shape)
    whole = reference.rowsum(x, dims)
    assert same(rowsum(x, dims), whole)
    assert all(same(rowsum(y, dims, threads=2), whole) for y in strided(x))


@pytest.mark.parametrize("length", [PIECE + 1, 5000, PIECE**2, PIECE**2 + 300])
@each_type
def test_few_rows_are_summed_piece_by_piece_to_the_same_bits(dtype, length):
    x = numbers(np.random.default_rng(0), dtype, 2, length)
    many = rowsum(np.repeat(x, 40, axis=0), 1)  # enough rows to take all of them at once
    assert same(rowsum(x, 1), many[[0, 40]])
    if length <= PIECE**2:
        assert same(many[:1], matmul(np.ones((1, length), dtype), x[0][:, None])[0])


@each_type
def test_cuts_of_what_is_not_summed_change_no_bit_of_row_sums(dtype):
    x = numbers(np.random.default_rng(0), dtype, 400, 90)
    whole = rowsum(x, 0)
    for i, j in ((0, 1), (3, 40), (64, 90), (89, 90)):
        assert same(rowsum(x[:, i:j], 0), whole[i:j])


# ---- functions of torch


@pytest.mark.parametrize("function", [torch.sigmoid, torch.nn.functional.silu, torch.nn.functional.softplus])
def test_flat_functions_do_not_see_cuts_strides_and_threads(function):
    x = torch.from_numpy(numbers(np.random.default_rng(0), np.float32, 40_000, decades=0))
    whole = flat(function, x)
    cuts = [(0, 1), (17, 1017), (5, 40_000), (39_937, 40_000)]
    assert all(torch.equal(flat(function, x[i:j]), whole[i:j]) for i, j in cuts)
    assert torch.equal(flat(function, x.reshape(200, 200).T), whole.reshape(200, 200).T)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert torch.equal(flat(function, x), whole) and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_flat_functions_take_what_can_be_broadcast_and_return_several():
    x, y = torch.arange(6.0).reshape(2, 3), torch.tensor([1.0, 2.0, 4.0])
    assert torch.equal(flat(torch.div, x, y), x / y)
    both = flat(lambda x: (x + 1, x * 2), x)
    assert torch.equal(both[0], x + 1) and torch.equal(both[1], x * 2)
    assert flat(torch.exp, torch.empty(0, 3)).shape == (0, 3)
    with pytest.raises(TypeError, match="operand 1 is ndarray: tensors on cpu are expected"):
        flat(torch.add, x, np.ones(3))


# ---- variants and their promises


def test_every_operation_has_ours_torchs_and_a_definition():
    for operation in OPERATIONS:
        names = {v.name: v.guarantee for v in variants(operation)}
        assert names["own"] == "layout" and names["torch"] == "run"
        assert "reference" in names or operation == "pointwise"
    with pytest.raises(ChoiceError, match=r"torch.*promises 'run'.*These meet 'layout': own"):
        check("matmul", "torch", "layout")


@pytest.mark.parametrize("name", ["torch", "torch-blocks"])
@each_type
def test_products_of_torch_are_near_and_of_the_same_kind(dtype, name):
    a, b = factors(dtype, 40, 70, 90, decades=0)
    near = matmul(a, b, variant=name)
    assert near.dtype == dtype
    assert np.allclose(near, matmul(a, b), rtol=0, atol=70 * 20 * np.finfo(dtype).eps)
    assert same(
        matmul(a[:, ::-1], b[::-1], variant=name), matmul(a[:, ::-1].copy(), b[::-1].copy(), variant=name)
    )


def test_blocks_of_torch_do_not_see_cuts_between_them():
    a, b = factors(np.float32, 96, 200, 192)
    whole = get("matmul", "torch-blocks")(a, b)
    assert same(matmul(a[32:], b[:, 64:128], variant="torch-blocks"), whole[32:, 64:128].copy())


@each_type
@pytest.mark.parametrize("depth", [15, 16, 17, 20, 31, 40])
def test_packing_ends_and_copies_all_wherever_in_a_line_of_the_cache_the_factors_begin(dtype, depth):
    a, b = factors(dtype, 20, depth, 33)
    stride = 48  # whole lines of the cache
    memory = np.zeros(33 * stride + 16, dtype)
    whole = reference.matmul(a, b)
    for offset in range(16):
        columns = np.lib.stride_tricks.as_strided(
            memory[offset:], b.T.shape, (stride * b.itemsize, b.itemsize)
        )
        columns[...] = b.T
        for level in LEVELS:
            assert same(matmul(a, columns.T, level=level), whole), (offset, level)


# ---- wrong operands


@pytest.mark.parametrize(
    "a, b, error, message",
    [
        (
            np.ones((2, 3)),
            np.ones((2, 3)),
            ValueError,
            r"last dim of a \(2, 3\) and the last but one of b \(2, 3\)",
        ),
        (np.ones(3), np.ones((3, 2)), ValueError, r"a has shape \(3,\).*\(\.\.\., rows, depth\)"),
        (np.ones((2, 1, 1)), np.ones((3, 1, 1)), ValueError, "leading dims .* cannot be broadcast"),
        (np.ones((1, 1)), np.ones((1, 1), np.float32), TypeError, "a is of float64 and b of float32"),
        (
            np.ones((1, 1), int),
            np.ones((1, 1)),
            TypeError,
            "a is of int64: convert it to one of float32, float64",
        ),
        (
            np.ones((1, 1)),
            [[1.0]],
            TypeError,
            "b is list: an array of NumPy or a tensor of torch is expected",
        ),
        (torch.ones((1, 1), dtype=torch.bfloat16), np.ones((1, 1)), TypeError, "a is of bfloat16"),
        (torch.ones((1, 1), device="meta"), np.ones((1, 1)), TypeError, "a is on meta: only tensors on cpu"),
    ],
)
def test_operands_that_do_not_fit_are_refused(a, b, error, message):
    with pytest.raises(error, match=message):
        matmul(a, b)


def test_results_and_options_that_do_not_fit_are_refused():
    a = np.ones((2, 2))
    read_only = np.ones((2, 2))
    read_only.flags.writeable = False
    for out, message in ((np.ones((2, 3)), r"out is float64 of shape \(2, 3\); float64 of shape \(2, 2\)"),
                         (np.ones((2, 2), np.float32), "out is float32"), (read_only, "out is read-only")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            matmul(a, a, out)
    with pytest.raises(ValueError, match="threads -1: choose 1 to"):
        matmul(a, a, threads=-1)
    with pytest.raises(ChoiceError, match="unknown instruction set 'mmx': choose one of"):
        matmul(a, a, level="mmx")
    with pytest.raises(ChoiceError, match="unknown matmul 'mkl': choose one of own, torch"):
        matmul(a, a, variant="mkl")
    with pytest.raises(ValueError, match=r"dims 2 of x of shape \(2, 2\): choose different ones of -2 ... 1"):
        rowsum(a, 2)
    with pytest.raises(ValueError, match="choose different ones"):
        rowsum(a, (0, -2))


def test_bytes_in_foreign_order_and_misaligned_ones_are_copied():
    a, b = factors(np.float64, 4, 5, 6)
    memory = np.zeros(a.nbytes + 1, np.uint8)
    askew = memory[1:].view(np.float64).reshape(a.shape)
    askew[...] = a
    whole = matmul(a, b)
    assert same(matmul(askew, b), whole) and same(matmul(a.astype(">f8"), b), whole)
