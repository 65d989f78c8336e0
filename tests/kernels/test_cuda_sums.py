"""Sums on the GPU: the bits of their definition, whatever the order of blocks and threads.

They need a device; `test_cuda_on_host.py` runs this file without one.
"""

import numpy as np
import pytest

from kernels import registry
from kernels.sums import cupy as gpu
from kernels.sums import launch

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(bool(gpu.missing()), reason=gpu.missing() or "")]

TREES = ["sptr", "sprg", "tprc", "sp-pairwise", "sp-neumaier"]
SHAPES = [(32, 1, 7), (64, 2, 4096), (256, 8, 4096), (1024, 1, 3)]
LENGTHS = [0, 1, 31, 63, 64, 65, 255, 257, 1000, 4097, 100_003]


def on_device(x):
    import cupy

    return cupy.asarray(x)


def sample(n, dtype=np.float64, decades=8, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(n) * 10.0 ** rng.integers(-decades, decades + 1, n)).astype(dtype)


def lanes_as_stated(x, block):
    lane = np.zeros(block, x.dtype)
    for k in range(0, len(x), block):
        row = x[k : k + block]
        lane[: len(row)] += row
    while len(lane) > 1:
        lane = lane[: len(lane) // 2] + lane[len(lane) // 2 :]
    return lane[0]


def left_to_right_as_stated(p):
    return np.cumsum(np.concatenate([np.zeros(1, p.dtype), p]))[-1]


def pairwise_as_stated(p):
    p, s = p.copy(), 1
    while s < len(p):
        for i in range(0, len(p) - s, 2 * s):
            p[i] += p[i + s]
        s *= 2
    return p[0]


def neumaier_as_stated(p):
    total, error = p.dtype.type(0), p.dtype.type(0)
    for v in p:
        new = total + v
        error += (total - new) + v if abs(total) >= abs(v) else (v - new) + total
        total = new
    return total + error


def as_stated(name, x, shape):
    s = launch.shape(len(x), *shape)
    segments = [x[b * s.segment : (b + 1) * s.segment] for b in range(s.blocks)]
    p = np.array([lanes_as_stated(segment, s.block) for segment in segments])
    if name == "sptr":
        return lanes_as_stated(p, s.block)
    combined = {"sp-pairwise": pairwise_as_stated, "sp-neumaier": neumaier_as_stated}
    return combined.get(name, left_to_right_as_stated)(p)


def same_bits(found, expected):
    return found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_tree_is_the_one_stated(name, dtype, shape):
    variant = registry.get("sum", name, "cupy")
    for n in LENGTHS:
        x = sample(n, dtype)
        assert same_bits(variant(on_device(x), *shape), as_stated(name, x, shape)), n


@pytest.mark.parametrize("name", ["ao", "spa"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_atomic_additions_add_every_element_once(name, dtype):
    """Integers, whose sums are exact in any order."""
    variant = registry.get("sum", name, "cupy")
    for n in LENGTHS:
        x = np.random.default_rng(n).integers(-9, 10, n).astype(dtype)
        assert same_bits(variant(on_device(x), block=64, items=3), x.sum())
