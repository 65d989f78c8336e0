"""Products on the GPU: the bits of the CPU, whatever the order of blocks and threads.

They need a device; `test_cuda_on_host.py` runs this file without one.
"""

import numpy as np
import pytest

from kernels.contract import conv, conv_input, conv_weight, matmul
from kernels.contract import cupy as gpu

from .contract import TYPES, numbers, same
from .test_contract_conv import MOVES, images

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(bool(gpu.missing()), reason=gpu.missing() or "")]

each_type = pytest.mark.parametrize("dtype", TYPES)


def run(function, *operands, **options):
    """The result on the host of operands that are copied to the device."""
    import cupy

    return function(*(cupy.asarray(x) if isinstance(x, np.ndarray) else x for x in operands), **options).get()


def factors(dtype, *shapes, decades=4):
    rng = np.random.default_rng(0)
    return [numbers(rng, dtype, *shape, decades=decades) for shape in shapes]


@pytest.mark.parametrize(
    "rows, depth, columns", [(1, 1, 1), (5, 256, 3), (70, 40, 65), (3, 257, 66), (4, 520, 4), (3, 0, 2)]
)
@each_type
def test_products_have_the_bits_of_the_cpu(dtype, rows, depth, columns):
    a, b = factors(dtype, (rows, depth), (depth, columns))
    assert same(run(gpu.matmul, a, b), matmul(a, b))


@each_type
def test_leading_dims_are_broadcast(dtype):
    for left, right in (
        ((2, 3, 5, 7), (3, 7, 4)),
        ((5, 7), (2, 7, 4)),
        ((3, 1, 5, 7), (2, 7, 4)),
        ((0, 5, 7), (7, 4)),
    ):
        a, b = factors(dtype, left, right)
        assert same(run(gpu.matmul, a, b), matmul(a, b))


@each_type
def test_a_grid_that_is_smaller_than_the_tiles(dtype, monkeypatch):
    monkeypatch.setattr(gpu, "BLOCKS", 2)
    a, b = factors(dtype, (130, 20), (20, 70))
    assert same(run(gpu.matmul, a, b), matmul(a, b))


@each_type
def test_subnormals_nan_and_infinities_are_those_of_the_cpu(dtype):
    a, b = factors(dtype, (9, 300), (300, 7), decades=0)
    a[0] *= np.finfo(dtype).smallest_normal
    a[2, 5], a[3, 280], b[4, 6] = np.inf, -np.nan, np.inf
    with np.errstate(all="ignore"):
        assert same(run(gpu.matmul, a, b), matmul(a, b))


@pytest.mark.parametrize("shape, window, moves", MOVES)
@each_type
def test_convolutions_and_gradients_have_the_bits_of_the_cpu(dtype, shape, window, moves):
    x, w = images(dtype, shape, window, moves)
    y = conv(x, w, **moves)
    assert same(run(gpu.conv, x, w, **moves), y)
    assert same(run(gpu.conv_input, y, w, shape, **moves), conv_input(y, w, shape, **moves))
    assert same(run(gpu.conv_weight, x, y, window, **moves), conv_weight(x, y, window, **moves))


def test_what_no_kernel_takes_is_refused():
    import cupy

    a, b = (cupy.asarray(x) for x in factors(np.float64, (2, 3), (3, 4)))
    with pytest.raises(TypeError, match=r"a is ndarray; cupy\.asarray copies an array to the device"):
        gpu.matmul(a.get(), b)
    with pytest.raises(TypeError, match="operands are of float32 and float64"):
        gpu.matmul(a, b.astype(np.float32))
    with pytest.raises(TypeError, match="a is of int64: convert it to one of float64, float32"):
        gpu.matmul(a.astype(np.int64), b)
    with pytest.raises(ValueError, match="the last dim of a"):
        gpu.matmul(b, a)
