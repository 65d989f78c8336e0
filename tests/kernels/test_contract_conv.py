"""Convolutions and their gradients: the bits of the definition, whatever is cut that is not summed."""

import numpy as np
import pytest
import torch

from kernels.contract import conv, conv_input, conv_weight, reference
from kernels.contract.native import LEVELS

from .contract import TYPES, moved, numbers, same, strided

each_type = pytest.mark.parametrize("dtype", TYPES)
# (spatial shape, window, how it moves)
MOVES = [
    ((9,), (3,), dict(padding=1)),
    ((6, 7), (3, 2), dict(stride=2, padding=[(1, 0), 2], dilation=(1, 2))),
    ((7, 5), (5, 3), dict(stride=(3, 1), padding=2, groups=2)),
    ((6, 6), (3, 3), dict(padding=-1)),
    ((5, 5), (1, 1), dict(stride=2)),
    ((4, 3, 5), (2, 3, 2), dict(stride=(1, 2, 1), padding=(0, 1, 1))),
]


def images(dtype, shape, window, moves, samples=2, channels=4, outputs=6, seed=0):
    rng = np.random.default_rng(seed)
    x = numbers(rng, dtype, samples, channels, *shape)
    return x, numbers(rng, dtype, outputs, channels // moves.get("groups", 1), *window)


# ---- the definition


@pytest.mark.parametrize("shape, window, moves", MOVES)
def test_the_definition_is_torchs_convolution(shape, window, moves):
    x, w = images(np.float64, shape, window, moves, samples=1, channels=2, outputs=2)
    y = reference.conv(x, w, **moves)
    for ours, theirs in (
        (y, conv(x, w, variant="torch", **moves)),
        (reference.conv_input(y, w, shape, **moves), conv_input(y, w, shape, variant="torch", **moves)),
        (reference.conv_weight(x, y, window, **moves), conv_weight(x, y, window, variant="torch", **moves)),
    ):
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() <= 1e-12 * np.abs(theirs).max()


@pytest.mark.parametrize("shape, window, moves", MOVES)
def test_float32_has_the_bits_of_the_definition(shape, window, moves):
    x, w = images(np.float32, shape, window, moves)
    y = conv(x, w, **moves)
    assert same(y, reference.conv(x, w, **moves))
    gx, gw = conv_input(y, w, shape, **moves), conv_weight(x, y, window, **moves)
    assert same(gx, reference.conv_input(y, w, shape, **moves))
    assert same(gw, reference.conv_weight(x, y, window, **moves))
    for level in LEVELS:
        assert same(conv(x, w, level=level, **moves), y)
        assert same(conv_input(y, w, shape, level=level, **moves), gx)
        assert same(conv_weight(x, y, window, level=level, **moves), gw)


def test_float64_has_the_bits_of_the_definition():
    shape, window, moves = MOVES[1]
    x, w = images(np.float64, shape, window, moves, channels=2, outputs=2)
    y = conv(x, w, **moves)
    assert same(y, reference.conv(x, w, **moves))
    assert same(conv_input(y, w, shape, **moves), reference.conv_input(y, w, shape, **moves))
    assert same(conv_weight(x, y, window, **moves), reference.conv_weight(x, y, window, **moves))


# ---- what bits do not depend on


def cut_padding(n, low, high, start, stop, stride, reach):
    """The elements of a dim of n that outputs start ... stop - 1 see, and the padding that is left on both sides."""
    first, last = start * stride - low, (stop - 1) * stride - low + reach
    return slice(max(first, 0), max(min(last, n), 0)), (max(-first, 0), max(last - n, 0))


@pytest.mark.parametrize("stride, dilation", [(1, 1), (2, 1), (1, 2), (3, 2)])
@each_type
def test_cuts_of_space_change_no_bit(dtype, stride, dilation):
    x, w = images(dtype, (23, 41), (3, 5), {}, channels=3)
    moves = dict(stride=stride, dilation=dilation)
    padding = [(2, 1), (4, 3)]
    whole = conv(x, w, padding=padding, **moves)
    rng = np.random.default_rng(0)
    for _ in range(12):
        spans = [np.sort(rng.choice(n + 1, 2, replace=False)) for n in whole.shape[2:]]
        parts = [
            cut_padding(n, low, high, i, j, stride, (k - 1) * dilation + 1)
            for n, (low, high), (i, j), k in zip(x.shape[2:], padding, spans, (3, 5), strict=True)
        ]
        mine = conv(x[:, :, parts[0][0], parts[1][0]].copy(), w, padding=[p for _, p in parts], **moves)
        (i, j), (k, m) = spans
        assert same(mine, whole[:, :, i:j, k:m].copy())


@pytest.mark.parametrize("stride", [1, 2, 3])
@each_type
def test_cuts_of_space_change_no_bit_of_the_gradient_of_images(dtype, stride):
    n, k, low = 24, 5, 2
    outputs = (n + 2 * low - k) // stride + 1
    rng = np.random.default_rng(0)
    gy, w = numbers(rng, dtype, 2, 6, outputs, 9), numbers(rng, dtype, 6, 3, k, 1)
    moves = dict(stride=(stride, 1), padding=[(low, low), 0])
    whole = conv_input(gy, w, (n, 9), **moves)
    for i, j in ((0, 7), (5, 6), (7, 20), (11, 24)):
        first = max(0, -((k - 1 - low - i) // stride))  # the outputs that see rows i ... j - 1
        last = min(outputs, (j - 1 + low) // stride + 1)
        # Row i of the part is row 0; its first output stands at first * stride - low of the whole.
        before = i - (first * stride - low)
        after = (last - 1 - first) * stride + k - (j - i) - before
        mine = conv_input(
            gy[:, :, first:last].copy(), w, (j - i, 9), stride=(stride, 1), padding=[(before, after), 0]
        )
        assert same(mine, whole[:, :, i:j].copy())


@each_type
def test_cuts_of_samples_and_channels_change_no_bit(dtype):
    x, w = images(dtype, (12, 13), (3, 3), {}, samples=5, outputs=20)
    moves = dict(padding=1, stride=(2, 1))
    y = conv(x, w, **moves)
    gx, gw = conv_input(y, w, (12, 13), **moves), conv_weight(x, y, (3, 3), **moves)
    for i, j in ((0, 1), (1, 4), (4, 5)):
        assert same(conv(x[i:j], w, **moves), y[i:j])
        assert same(conv_input(y[i:j], w, (12, 13), **moves), gx[i:j])
    for i, j in ((0, 1), (3, 17), (19, 20)):
        assert same(conv(x, w[i:j], **moves), y[:, i:j].copy())
        assert same(conv_weight(x, y[:, i:j], (3, 3), **moves), gw[i:j])
    for i, j in ((0, 1), (1, 4)):
        assert same(conv_input(y, w[:, i:j], (12, 13), **moves), gx[:, i:j].copy())
        assert same(conv_weight(x[:, i:j], y, (3, 3), **moves), gw[:, i:j].copy())


@pytest.mark.parametrize("shape, window, moves", MOVES)
def test_threads_strides_and_addresses_change_no_bit(shape, window, moves):
    x, w = images(np.float32, shape, window, moves, samples=6)
    y = conv(x, w, **moves)
    gx, gw = conv_input(y, w, shape, **moves), conv_weight(x, y, window, **moves)
    for other in [*strided(x), moved(x, 3)]:
        assert same(conv(other, w, threads=2, **moves), y)
        assert same(conv_weight(other, y, window, threads=3, **moves), gw)
    for other in [*strided(y), moved(y, 1)]:
        assert same(conv_input(other, w, shape, threads=2, **moves), gx)
    for other in strided(w):
        assert same(conv(x, other, **moves), y)
    for out, whole, call in (
        (y, y, lambda o: conv(x, w, o, **moves)),
        (gx, gx, lambda o: conv_input(y, w, shape, o, **moves)),
        (gw, gw, lambda o: conv_weight(x, y, window, o, **moves)),
    ):
        for place in strided(np.full_like(out, np.nan)):
            assert call(place) is place and same(place.copy(), whole)


def test_gaps_of_a_result_are_not_written():
    x, w = images(np.float32, (6, 8), (3, 3), {})
    wide = np.full((2, 6, 6, 10), 7.0, np.float32)  # rows two apart, as far as the zeros around the images
    conv(x, w, wide[..., :8], padding=1)
    assert same(wide[..., :8].copy(), conv(x, w, padding=1)) and (wide[..., 8:] == 7).all()


def test_enough_products_for_several_threads_have_the_same_bits():
    x, w = images(np.float32, (32, 32), (3, 3), {}, samples=3, channels=16, outputs=32)
    y = conv(x, w, padding=1)
    for threads in (2, 3):
        assert same(conv(x, w, padding=1, threads=threads), y)
        assert same(
            conv_input(y, w, (32, 32), padding=1, threads=threads), conv_input(y, w, (32, 32), padding=1)
        )
        assert same(
            conv_weight(x, y, (3, 3), padding=1, threads=threads), conv_weight(x, y, (3, 3), padding=1)
        )


def test_nothing_to_add_is_plus_zero():
    x, w = np.ones((2, 0, 5)), np.ones((3, 0, 2))
    assert same(conv(x, w), np.zeros((2, 3, 4)))
    gx = conv_input(
        np.ones((1, 1, 2)), np.ones((1, 1, 1)), (3,), stride=2
    )  # no output sees the second element
    assert same(gx, np.array([[[1.0, 0.0, 1.0]]]))
    assert same(conv_weight(np.ones((0, 2, 5)), np.ones((0, 3, 4)), (2,)), np.zeros((3, 2, 2)))
    assert conv(np.ones((0, 2, 5)), np.ones((3, 2, 2))).shape == (0, 3, 4)


def test_tensors_are_taken_by_their_memory():
    x, w = (torch.from_numpy(v) for v in images(np.float32, (6, 8), (3, 3), {}))
    y = conv(x, w)
    assert isinstance(y, torch.Tensor) and same(y.numpy(), conv(x.numpy(), w.numpy()))


# ---- wrong operands


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x, w: conv(x[0], w), r"x has shape \(4, 6, 8\) and the window 2 dims"),
        (lambda x, w: conv(x[:, :3], w), r"w of shape \(6, 4, 3, 3\) with 1 groups for x of 3 channels"),
        (lambda x, w: conv(x, w, groups=2), "with 2 groups for x of 4 channels"),
        (lambda x, w: conv(x, w, stride=0), "stride 0: expected a number, or 2 of them, of 1 or more"),
        (lambda x, w: conv(x, w, dilation=(1, 2, 3)), r"dilation \(1, 2, 3\)"),
        (
            lambda x, w: conv(x, w, padding=(1, 2, 3)),
            r"padding \(1, 2, 3\): expected a number, or 2 numbers or pairs",
        ),
        (lambda x, w: conv(x, w, dilation=4), "6 elements of spatial dim 0 .* are fewer than a window of 3"),
        (lambda x, w: conv_input(x, w, (6, 8)), r"w of shape \(6, 4, 3, 3\) .* for a gradient of 4 channels"),
        (lambda x, w: conv_input(x[:, :1], w[:1], (6,)), r"size \(6,\): 2 spatial dims are expected"),
        (lambda x, w: conv_input(x[:, :1], w[:1], (6, 8)), r"\(4, 6\) is its spatial shape"),
        (lambda x, w: conv_weight(x, x[:1], (3, 3)), "equal samples"),
        (lambda x, w: conv_weight(x, x, (3, 3)), r"\(4, 6\) is its spatial shape"),
    ],
)
def test_operands_that_do_not_fit_are_refused(call, message):
    x, w = images(np.float32, (6, 8), (3, 3), {})
    with pytest.raises(ValueError, match=message):
        call(x, w)


def test_unknown_options_are_refused():
    x, w = images(np.float32, (6, 8), (3, 3), {})
    with pytest.raises(TypeError, match="unknown 'strides': choose from stride, dilation, padding, groups"):
        conv(x, w, strides=2)
