"""The CUDA block stencils give the bits of the plain NumPy definition.

They need a device; `test_cuda_on_host.py` runs this file without one.
"""

import numpy as np
import pytest

from kernels.stencil import backend, reference
from miniapps.system.environment import no_cuda

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(bool(no_cuda()), reason=no_cuda() or "")]

SHAPES = [(3, 16, 16), (2, 32, 32), (5, 7, 9), (1, 4, 70), (4, 64, 64), (2, 5, 130)]
COEFFICIENTS = np.array([[0.3, 0.01], [0.2, 0.02], [0.7, 0.005]])


@pytest.fixture
def gpu():
    return backend("cupy")


def field(rng, blocks, rows, columns, pad):
    scale = np.exp2(rng.integers(-30, 30, (blocks, rows + 2 * pad, columns + 2 * pad)))
    return rng.standard_normal(scale.shape) * scale


def same_bits(device, host):
    device = device.get()
    return device.dtype == host.dtype and device.shape == host.shape and device.tobytes() == host.tobytes()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("degree", [0, 1, 3])
def test_preconditioned_laplacian_and_its_dot_products(gpu, shape, degree):
    r, coefficients = field(np.random.default_rng(1), *shape, 4), COEFFICIENTS[:degree].copy()
    results = []
    for module in (gpu, reference):
        u, w, dots = (module.xp.zeros(s) for s in (shape, shape, (shape[0], 3)))
        scalars = (17.5, 0.007, module.xp.asarray(coefficients))
        module.chebyshev_laplacian(module.xp.asarray(r), 4, u, w, dots, *scalars)
        results.append((u, w, dots))
    assert all(same_bits(a, b) for a, b in zip(*results, strict=True))


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
    found = out.get()
    number = ~np.isnan(expected)  # the payload of a NaN is the processor's choice
    assert number.any() and (~number).any() and np.isnan(found[~number]).all()
    assert found[number].tobytes() == expected[number].tobytes()


def test_strided_copies(gpu):
    runs = np.array([(0, 5, 4, 1, 1), (10, 20, 5, 6, 1), (3, 40, 3, 1, 7), (1, 0, 2, 4, 3)], np.int64)
    results = []
    for module in (gpu, reference):
        dst = module.xp.asarray(np.full(60, -1.0))
        module.copy_runs(module.xp.asarray(np.arange(60.0)), dst, module.xp.asarray(runs))
        module.copy_runs(dst, dst, module.xp.asarray(runs[:0]))
        results.append(dst)
    assert same_bits(*results)


@pytest.mark.parametrize("wrong", ["host", "dtype", "strided", "pad", "blocks", "dots"])
def test_fields_that_do_not_fit_are_refused(gpu, wrong):
    xp = gpu.xp
    r, u, w, dots = xp.zeros((2, 6, 6)), xp.zeros((2, 4, 4)), xp.zeros((2, 4, 4)), xp.zeros((2, 3))
    match wrong:
        case "host":
            u = np.zeros((2, 4, 4))
        case "dtype":
            w = w.astype(xp.float32)
        case "strided":
            u = xp.zeros((2, 4, 8))[:, :, ::2]
        case "pad":
            r = xp.zeros((2, 8, 8))
        case "blocks":
            w = xp.zeros((3, 4, 4))
        case "dots":
            dots = xp.zeros((2, 2))
    with pytest.raises((TypeError, ValueError)):
        gpu.chebyshev_laplacian(r, 1, u, w, dots, 1.0, 1.0, xp.zeros((0, 2)))
