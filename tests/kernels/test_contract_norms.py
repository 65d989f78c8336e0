"""Layer norm and softmax by fixed operations: the bits of their definitions, on every instruction set, for all cuts and
threads."""

import numpy as np
import pytest

from kernels.contract.native import LEVELS
from kernels.contract.norms import layer_norm, layer_norm_backward, softmax, softmax_backward
from kernels.contract.reference_attention import exponential, logarithm

torch = pytest.importorskip("torch")


def total(terms):
    """16 partial sums of a row, joined by halves."""
    sums = np.zeros(16, terms.dtype)
    for k, term in enumerate(terms):
        sums[k % 16] += term
    for half in (8, 4, 2, 1):
        sums = sums[:half] + sums[half:]
    return sums[0]


def defined(x, weight, bias, eps):
    """`layer_norm`, element by element."""
    n, one = x.dtype.type(x.shape[-1]), x.dtype.type(1)
    mean = np.array([total(row) / n for row in x])[:, None]
    apart = x - mean
    variance = np.array([total(row) / n for row in apart * apart])[:, None]
    scale = one / np.sqrt(variance + x.dtype.type(eps))
    y = apart * scale
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), mean, scale


def defined_backward(gradient, x, mean, scale, weight):
    """`layer_norm_backward`."""
    n = x.dtype.type(x.shape[-1])
    unit = (x - mean) * scale
    slopes = gradient if weight is None else gradient * weight
    along = np.array([total(row) for row in slopes * unit])[:, None]
    sums = np.array([total(row) for row in slopes])[:, None]
    return (slopes - (unit * along + sums) / n) * scale, over_rows(gradient * unit), over_rows(gradient)


def over_rows(terms):
    whole = np.zeros_like(terms[0])
    for begin in range(0, len(terms), 256):
        piece = np.zeros_like(whole)
        for row in terms[begin : begin + 256]:
            piece = piece + row
        whole = whole + piece
    return whole


def drawn(rows, columns, dtype):
    rng = np.random.default_rng(rows * 1000 + columns)
    x, gradient = (rng.standard_normal((rows, columns)).astype(dtype) * 3 + 1 for _ in range(2))
    weight, bias = rng.standard_normal((2, columns)).astype(dtype)
    return x, gradient, weight, bias


def same(found, expected):
    assert [np.asarray(each).tobytes() for each in found] == [each.tobytes() for each in expected]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "rows, columns", [(1, 1), (3, 5), (2, 16), (4, 33), (5, 64), (7, 100), (300, 31), (520, 20)]
)
def test_the_bits_are_those_of_the_definition_on_every_instruction_set(rows, columns, dtype):
    x, gradient, weight, bias = drawn(rows, columns, dtype)
    for scaled, moved in ((weight, bias), (None, None), (weight, None)):
        expected = defined(x, scaled, moved, 1e-5)
        back = defined_backward(gradient, x, expected[1], expected[2], scaled)
        for level in LEVELS:
            for threads in (1, 3):
                how = dict(threads=threads, level=level)
                same(layer_norm(x, (columns,), scaled, moved, 1e-5, **how), expected)
                found = layer_norm_backward(gradient, x, (columns,), *expected[1:], scaled, **how)
                same(found, back)


def test_a_cut_between_rows_keeps_bits_and_only_what_is_wanted_is_computed():
    x, gradient, weight, bias = drawn(40, 24, np.float32)
    y, mean, scale = layer_norm(x, (24,), weight, bias)
    part = layer_norm(x[11:30], (24,), weight, bias)
    same(part, [each[11:30] for each in (y, mean, scale)])
    whole = layer_norm_backward(gradient, x, (24,), mean, scale, weight)
    for k in range(3):
        wanted = [k == other for other in range(3)]
        found = layer_norm_backward(gradient, x, (24,), mean, scale, weight, wanted)
        assert [each is not None for each in found] == wanted
        same([found[k]], [whole[k]])


def test_tensors_of_several_dims_are_near_torch():
    g = torch.Generator().manual_seed(3)
    x, gradient = (torch.randn(3, 5, 4, 6, generator=g) for _ in range(2))
    weight, bias = torch.randn(4, 6, generator=g), torch.randn(4, 6, generator=g)
    found = layer_norm(x, (4, 6), weight, bias, 1e-5)
    expected = torch.native_layer_norm(x, (4, 6), weight, bias, 1e-5)
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other)
    found = layer_norm_backward(gradient, x, (4, 6), *found[1:], weight)
    back = torch.ops.aten.native_layer_norm_backward
    expected = back(gradient, x, (4, 6), *expected[1:], weight, bias, [True] * 3)
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_has_the_one_nan_and_leaves_the_others_alone(bad):
    x, gradient, weight, bias = drawn(6, 40, np.float32)
    clean = layer_norm(x, (40,), weight, bias)
    x[2, 7] = -bad
    for level in LEVELS:
        y, mean, scale = layer_norm(x, (40,), weight, bias, level=level)
        same([y[[0, 1, 3, 4, 5]]], [clean[0][[0, 1, 3, 4, 5]]])
        assert set(y[2].view(np.uint32)) == {0x7FC00000}
        of_x, of_weight, _ = layer_norm_backward(gradient, x, (40,), mean, scale, weight, level=level)
        assert set(of_x[2].view(np.uint32)) == {0x7FC00000} == set(of_weight.view(np.uint32))


def defined_softmax(x, log):
    """`softmax` of rows."""
    found = []
    for row in x:
        apart = row - row.max()
        powers = exponential(apart)
        sums = total(powers)
        found.append(apart - logarithm(sums[None])[0] if log else powers / sums)
    return np.array(found)


def defined_softmax_backward(gradient, y, log):
    if log:
        sums = np.array([total(row) for row in gradient])[:, None]
        return gradient - exponential(y) * sums
    product = gradient * y
    return product - y * np.array([total(row) for row in product])[:, None]


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows, columns", [(1, 1), (3, 5), (2, 16), (4, 33), (5, 64), (7, 100), (40, 1500)])
def test_softmax_has_the_bits_of_its_definition_on_every_instruction_set(rows, columns, dtype, log):
    x, gradient, _, _ = drawn(rows, columns, dtype)
    x *= 3
    x[0, : columns // 2] = -np.inf
    expected = defined_softmax(x, log)
    back = defined_softmax_backward(gradient, expected, log)
    for level in LEVELS:
        for threads in (1, 3):
            same([softmax(x, 1, log, threads=threads, level=level)], [expected])
            same([softmax_backward(gradient, expected, 1, log, threads=threads, level=level)], [back])
    same([softmax(x[1:3], -1, log)], [expected[1:3]])


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("log", [False, True])
def test_softmax_is_near_torch_along_each_dim(dim, log):
    g = torch.Generator().manual_seed(5)
    x, gradient = (torch.randn(4, 9, 7, generator=g, dtype=torch.float64) for _ in range(2))
    own = softmax(x, dim, log)
    torch.testing.assert_close(
        own, (torch.log_softmax if log else torch.softmax)(x, dim), rtol=1e-13, atol=1e-14
    )
    name = "_log_softmax_backward_data" if log else "_softmax_backward_data"
    back = getattr(torch.ops.aten, name)(gradient, own, dim, torch.float64)
    torch.testing.assert_close(softmax_backward(gradient, own, dim, log), back, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("log", [False, True])
def test_softmax_of_rows_that_are_not_finite_is_that_of_torch(log):
    x = np.random.default_rng(1).standard_normal((5, 40)).astype(np.float32)
    x[0, 3], x[1, 5], x[2], x[3, 20:] = np.nan, np.inf, -np.inf, -np.inf
    expected = (torch.log_softmax if log else torch.softmax)(torch.from_numpy(x), 1).numpy()
    for level in LEVELS:
        found = softmax(x, 1, log, level=level)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        assert set(found[np.isnan(found)].view(np.uint32)) == {0x7FC00000}
        back = softmax_backward(x, found, 1, log, level=level)
        assert set(back[np.isnan(back)].view(np.uint32)) == {0x7FC00000}


def test_wrong_operands_are_refused_by_name():
    x, gradient, weight, _ = drawn(4, 8, np.float32)
    for arguments, kind, text in [
        ((x, (7,)), ValueError, r"x is \(4, 8\)"),
        ((x[:, :0], (0,)), ValueError, "one element or more"),
        ((x, (8,), weight[:7]), ValueError, r"weight is \(7,\)"),
        ((x, (8,), weight, weight.astype(np.float64)), TypeError, "bias is of float64"),
        ((x.astype(np.float16), (8,)), TypeError, "float16"),
    ]:
        with pytest.raises(kind, match=text):
            layer_norm(*arguments)
    _, mean, scale = layer_norm(x, (8,))
    with pytest.raises(ValueError, match=r"gradient is \(3, 8\)"):
        layer_norm_backward(gradient[:3], x, (8,), mean, scale)
    with pytest.raises(ValueError, match=r"gradient is float32 \(3, 8\), and y is float32 \(4, 8\)"):
        softmax_backward(gradient[:3], x)
    with pytest.raises(ValueError, match=r"scale is \(3, 1\)"):
        layer_norm_backward(gradient, x, (8,), mean, scale[:3])
