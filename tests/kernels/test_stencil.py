"""The C++ block stencils give the bits of the plain NumPy definition, for any shape, pad and number of threads."""

import numpy as np
import pytest

from kernels.guarantees import ChoiceError
from kernels.stencil import backend, native, reference

SHAPES = [(3, 16, 16), (2, 32, 32), (5, 7, 9), (1, 4, 70), (4, 64, 64), (2, 5, 130)]


def field(rng, blocks, rows, columns, pad):
    scale = np.exp2(rng.integers(-30, 30, (blocks, rows + 2 * pad, columns + 2 * pad)))
    return rng.standard_normal(scale.shape) * scale


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


COEFFICIENTS = np.array([[0.3, 0.01], [0.2, 0.02], [0.7, 0.005]])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("degree", [0, 1, 3])
@pytest.mark.parametrize("threads", [1, 3])
def test_preconditioned_laplacian_and_its_dot_products(shape, degree, threads):
    r = field(np.random.default_rng(1), *shape, 4)
    results = []
    for module in (reference, native):
        u, w, dots = np.zeros(shape), np.zeros(shape), np.zeros((shape[0], 3))
        module.chebyshev_laplacian(r, 4, u, w, dots, 17.5, 0.007, COEFFICIENTS[:degree].copy(), threads)
        results.append((u, w, dots))
    assert all(same_bits(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threads", [1, 3])
def test_residual(shape, threads):
    results = []
    for module in (reference, native):
        rng = np.random.default_rng(5)
        b, x, r = field(rng, *shape, 0), field(rng, *shape, 4), field(rng, *shape, 1)
        module.poisson_residual(b, x, 4, r, 1, 17.5, threads)
        results.append(r)
    assert same_bits(*results)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threads", [1, 3])
def test_vector_updates(shape, threads):
    results = []
    for module in (reference, native):
        rng = np.random.default_rng(2)
        r, x = field(rng, *shape, 1), field(rng, *shape, 4)
        u, w, p, s = (field(rng, *shape, 0) for _ in range(4))
        module.cg_update(0.3, -1.7, u, w, p, s, x, 4, r, 1, threads)
        results.append((r, x, p, s))
    assert all(same_bits(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("shape", SHAPES)
def test_dot_products(shape):
    rng = np.random.default_rng(3)
    a, b = field(rng, *shape, 1), field(rng, *shape, 4)
    results = [np.zeros(shape[0]) for _ in range(2)]
    for module, out in zip((reference, native), results, strict=True):
        module.block_dots(a, 1, b, 4, out)
    assert same_bits(*results)


def test_a_block_has_the_same_bits_whatever_blocks_lie_beside_it():
    r = field(np.random.default_rng(4), 6, 16, 16, 4)

    def apply(r):
        u, w, dots = np.zeros((len(r), 16, 16)), np.zeros((len(r), 16, 16)), np.zeros((len(r), 3))
        native.chebyshev_laplacian(r, 4, u, w, dots, 2.0, 0.1, COEFFICIENTS, 1)
        return u, w, dots

    together = apply(r)
    for k in range(6):
        alone = apply(r[k : k + 1].copy())
        assert all(same_bits(a[0], b[k]) for a, b in zip(alone, together, strict=True))


def test_strided_copies():
    src = np.arange(60.0)
    runs = np.array([(0, 5, 4, 1, 1), (10, 20, 5, 6, 1), (3, 40, 3, 1, 7), (1, 0, 2, 4, 3)], np.int64)
    results = [np.full(60, -1.0) for _ in range(2)]
    for module, dst in zip((reference, native), results, strict=True):
        module.copy_runs(src, dst, runs)
    assert same_bits(*results)
    assert results[0][5] == 0.0 and results[0][20:25].tolist() == [10.0, 16.0, 22.0, 28.0, 34.0]


@pytest.mark.parametrize("wrong", ["dtype", "pad", "blocks"])
def test_fields_that_do_not_fit_are_refused(wrong):
    r, u, w, dots = np.zeros((2, 6, 6)), np.zeros((2, 4, 4)), np.zeros((2, 4, 4)), np.zeros((2, 3))
    if wrong == "dtype":
        w = w.astype(np.float32)
    elif wrong == "pad":
        r = np.zeros((2, 8, 8))
    else:
        w = np.zeros((3, 4, 4))
    with pytest.raises((TypeError, ValueError)):
        native.chebyshev_laplacian(r, 1, u, w, dots, 1.0, 1.0, COEFFICIENTS[:0].copy(), 1)


def test_an_unknown_backend_lists_the_known():
    with pytest.raises(ChoiceError, match="reference, native, cupy"):
        backend("fortran")
