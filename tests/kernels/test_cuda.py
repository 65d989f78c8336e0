"""The CUDA block stencils give the bits of the plain NumPy definition.

They need a device; `test_cuda_on_host.py` runs this file without one.
"""

import numpy as np
import pytest

from kernels.stencil import backend, reference
from miniapps.system.environment import no_cuda
from tests.kernels.stencil_cases import CYCLES, SHAPES, field, misfit, v_cycle

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(bool(no_cuda()), reason=no_cuda() or "")]


@pytest.fixture
def gpu():
    return backend("cupy")


def same_bits(device, host):
    device = device.get()
    return device.dtype == host.dtype and device.shape == host.shape and device.tobytes() == host.tobytes()


@pytest.mark.parametrize("case", CYCLES)
def test_both_ways_of_a_v_cycle(gpu, case):
    results = [v_cycle(module, *case) for module in (gpu, reference)]
    assert all(same_bits(a.copy(), b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("shape", SHAPES)
def test_residual(gpu, shape):
    results = []
    for module in (gpu, reference):
        rng = np.random.default_rng(5)
        b, x, r = (module.xp.asarray(field(rng, *shape, pad)) for pad in (0, 4, 1))
        module.poisson_residual(b, x, 4, r, 1, 17.5)
        results.append(r)
    assert same_bits(*results)


@pytest.mark.parametrize("shape", SHAPES)
def test_vector_updates(gpu, shape):
    results = []
    for module in (gpu, reference):
        rng = np.random.default_rng(2)
        r, x, u, w, p, s = (module.xp.asarray(field(rng, *shape, pad)) for pad in (1, 4, 0, 0, 0, 0))
        module.cg_update(0.3, -1.7, u, w, p, s, x, 4, r, 1)
        results.append((r, x, p, s))
    assert all(same_bits(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("shape", SHAPES)
def test_dot_products(gpu, shape):
    results = []
    for module in (gpu, reference):
        rng = np.random.default_rng(3)
        a, b = (module.xp.asarray(field(rng, *shape, pad)) for pad in (1, 4))
        out = module.xp.zeros(shape[0])
        module.block_dots(a, 1, b, 4, out)
        results.append(out)
    assert same_bits(*results)


def test_negative_zero_and_values_that_are_not_finite(gpu):
    values = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, 5e-324, 1.0, -1.0])
    a = np.random.default_rng(6).choice(values, (32, 3, 3))
    out, expected = gpu.xp.zeros(32), np.zeros(32)
    gpu.block_dots(gpu.xp.asarray(a), 0, gpu.xp.asarray(np.ones_like(a)), 0, out)
    with np.errstate(invalid="ignore"):
        reference.block_dots(a, 0, np.ones_like(a), 0, expected)
    dots = out.get()
    number = ~np.isnan(expected)  # the payload of a NaN is the processor's choice
    assert number.any() and (~number).any() and np.isnan(dots[~number]).all()
    assert dots[number].tobytes() == expected[number].tobytes()


def test_strided_copies(gpu):
    runs = np.array([(0, 5, 4, 1, 1), (10, 20, 5, 6, 1), (3, 40, 3, 1, 7), (1, 0, 2, 4, 3)], np.int64)
    results = []
    for module in (gpu, reference):
        dst = module.xp.asarray(np.full(60, -1.0))
        module.copy_runs(module.xp.asarray(np.arange(60.0)), dst, module.xp.asarray(runs))
        module.copy_runs(dst, dst, module.xp.asarray(runs[:0]))
        results.append(dst)
    assert same_bits(*results)


@pytest.mark.parametrize("wrong", ["host", "dtype", "strided", "pad", "blocks", "coarse", "factor"])
def test_fields_that_do_not_fit_are_refused(gpu, wrong):
    gpu.smooth_restrict(*misfit(gpu.xp, None))
    with pytest.raises((TypeError, ValueError)):
        gpu.smooth_restrict(*misfit(gpu.xp, wrong))
