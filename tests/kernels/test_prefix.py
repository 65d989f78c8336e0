"""Prefix sums beside rational numbers, for any number of threads."""

import ml_dtypes
import numpy as np
import pytest

from kernels.guarantees import ChoiceError
from kernels.sums.prefix import prefix_sums
from tests.rational import rational_sum

TYPES = {np.float64: 300, np.float32: 36, np.float16: 6, ml_dtypes.bfloat16: 36}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("spread", [0.02, 1])
def test_prefixes_are_rounded_once_whatever_the_threads(dtype, spread):
    draw = np.random.default_rng(1)
    x = draw.standard_normal((40, 130)) * 10.0 ** draw.uniform(
        -TYPES[dtype] * spread, TYPES[dtype] * spread / 2, (40, 130)
    )
    with np.errstate(over="ignore"):
        x = x.astype(dtype)
    found = prefix_sums(x, threads=1)
    wide = x.astype(found.dtype)
    for column in (0, 63, 64, 129):
        expected = np.concatenate([rational_sum(wide[: i + 1, column]) for i in range(40)])
        assert found[:, column].tobytes() == expected.tobytes()
    assert {prefix_sums(x, threads=k).tobytes() for k in (2, 3, 4)} == {found.tobytes()}


def test_prefixes_by_place_and_what_is_refused():
    x = np.array([[-0.0, 1.0], [-0.0, 2.0**-53], [1.0, 2.0**-53]])
    assert prefix_sums(x, "sorted").tolist() == [[0, 1], [0, 1], [1, 1]]
    assert not np.signbit(prefix_sums(x, "sorted")).any() and not np.signbit(prefix_sums(x)).any()
    assert prefix_sums(x)[2, 1] == 1 + 2.0**-52
    assert prefix_sums(x[:0]).shape == (0, 2) and prefix_sums(x[:, :0]).shape == (3, 0)
    with pytest.raises(ChoiceError, match="order of prefix sums 'atomic': choose one of exact, sorted"):
        prefix_sums(x, "atomic")
    with pytest.raises(ValueError, match=r"an array of shape \(3,\): \(n, columns\) is expected"):
        prefix_sums(x[:, 0])
    with pytest.raises(TypeError, match="cannot sum int64"):
        prefix_sums(np.ones((2, 2), dtype=int))
