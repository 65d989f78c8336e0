"""Vectors combined element by element: narrow types as by NumPy in float32, rounded at every step."""

import ml_dtypes
import numpy as np
import pytest

from kernels.allreduce.operations import OPERATIONS

FUNCTIONS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
NARROW = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]

named = pytest.mark.parametrize("name", FUNCTIONS)
typed = pytest.mark.parametrize("dtype", NARROW, ids=str)


def every_number(dtype, count, seed=0):
    """`count` rows, each with every bit pattern of the type."""
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(2**16).astype(np.uint16).view(dtype) for _ in range(count)])


@named
@typed
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_every_narrow_number_is_combined_as_by_numpy(name, dtype, count):
    x = every_number(dtype, count)
    expected = x[0]
    with np.errstate(all="ignore"):
        for row in x[1:]:
            expected = FUNCTIONS[name](expected.astype(np.float32), row.astype(np.float32)).astype(dtype)
        expected = expected + dtype.type(0)
    got = OPERATIONS[name].fold(x)
    number = ~np.isnan(expected)
    assert np.isnan(got[~number]).all()
    assert (got.view(np.uint16) == expected.view(np.uint16))[number].all()


@named
@typed
@pytest.mark.parametrize("count", [1, 2, 4])
def test_length_and_alignment_do_not_enter_the_bits(name, dtype, count):
    """Rows of seven are shorter than the vectors of every kind of processor."""
    x = every_number(dtype, count)[:, : 7 * 9000]
    with np.errstate(invalid="ignore"):  # of signalling NaN
        x[np.isnan(x)] = np.nan  # of two NaN, whose bits are kept is not promised
    whole = OPERATIONS[name].fold(x)
    parts = [OPERATIONS[name].fold(x[:, i : i + 7]) for i in range(0, x.shape[1], 7)]
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    out = x[0].copy()
    OPERATIONS[name].into([out, *x[1:]], out)
    assert out.tobytes() == whole.tobytes()
