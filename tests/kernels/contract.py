"""Helpers of the tests of products: hard operands, bits, and other places in memory."""

import numpy as np

TYPES = [np.float32, np.float64]


def numbers(rng, dtype, *shape, decades=3):
    """Normal numbers of several magnitudes."""
    x = rng.standard_normal(shape) * 10.0 ** rng.integers(-decades, decades + 1, shape)
    return x.astype(dtype)


def same(a, b):
    """Whether two arrays have one type and shape, and the same bits."""
    a, b = np.asarray(a), np.asarray(b)
    return (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()


def moved(x, offset):
    """A copy that begins so many elements after a multiple of 64 bytes."""
    memory = np.empty(x.nbytes + 64 + offset * x.itemsize, np.uint8)
    begin = -memory.ctypes.data % 64 + offset * x.itemsize
    copy = memory[begin : begin + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


def strided(x):
    """The same numbers in every layout: reversed, transposed, with gaps."""
    gaps = np.zeros([2 * n for n in x.shape], x.dtype)[tuple(slice(None, None, 2) for _ in x.shape)]
    gaps[...] = x
    return [np.asfortranarray(x), np.ascontiguousarray(x[..., ::-1])[..., ::-1], gaps, gaps[::-1][::-1]]
