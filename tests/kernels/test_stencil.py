"""The C++ block stencils give the bits of the plain NumPy definition, for any shape, pad and number of threads."""

import numpy as np
import pytest

from kernels.guarantees import ChoiceError
from kernels.stencil import backend, native, reference
from tests.kernels.stencil_cases import COEFFICIENTS, CYCLES, SHAPES, field, misfit, v_cycle


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("case", CYCLES)
@pytest.mark.parametrize("threads", [1, 3])
def test_both_ways_of_a_v_cycle(case, threads):
    results = [v_cycle(module, *case, threads) for module in (reference, native)]
    assert all(same_bits(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("factor", [1, 2, 3, 4])
def test_restriction_is_the_transpose_of_interpolation(factor):
    """Over factor^2, on one periodic block; and constants stay what they are."""
    rng, n = np.random.default_rng(7), 5
    q, e = rng.standard_normal((1, n * factor, n * factor)), rng.standard_normal((1, n, n))

    def wrapped(x, pad):
        return np.pad(x[0], pad, mode="wrap")[None]

    down = reference.restricted(wrapped(q, factor - 1), factor)
    up = reference.interpolated(wrapped(e, 2), 2, factor, 0)
    assert np.vdot(down, e) * factor**2 == pytest.approx(np.vdot(q, up), rel=1e-12)
    ones = reference.restricted(np.ones((1, 4 * factor - 2, 4 * factor - 2)), factor)
    assert ones == pytest.approx(1.0, rel=1e-15)


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
    rng = np.random.default_rng(4)
    r, e = field(rng, 6, 16, 16, 8), field(rng, 6, 4, 4, 3)

    def apply(r, e):
        z, coarse, u, w, dots = (np.zeros((len(r), *s)) for s in ((32, 32), (4, 4), (16, 16), (16, 16), (3,)))
        native.smooth_restrict(r, 8, z, coarse, 0, 4, 2.0, 0.1, COEFFICIENTS, 1)
        native.prolong_smooth(r, 8, z, e, 3, 4, u, 0, w, dots, 2.0, 0.1, COEFFICIENTS, 1)
        return coarse, u, w, dots

    together = apply(r, e)
    for k in range(6):
        alone = apply(r[k : k + 1].copy(), e[k : k + 1].copy())
        assert all(same_bits(a[0], b[k]) for a, b in zip(alone, together, strict=True))


def test_strided_copies():
    src = np.arange(60.0)
    runs = np.array([(0, 5, 4, 1, 1), (10, 20, 5, 6, 1), (3, 40, 3, 1, 7), (1, 0, 2, 4, 3)], np.int64)
    results = [np.full(60, -1.0) for _ in range(2)]
    for module, dst in zip((reference, native), results, strict=True):
        module.copy_runs(src, dst, runs)
    assert same_bits(*results)
    assert results[0][5] == 0.0 and results[0][20:25].tolist() == [10.0, 16.0, 22.0, 28.0, 34.0]


@pytest.mark.parametrize("wrong", ["dtype", "pad", "blocks", "coarse", "factor"])
def test_fields_that_do_not_fit_are_refused(wrong):
    native.smooth_restrict(*misfit(np, None))
    with pytest.raises((TypeError, ValueError)):
        native.smooth_restrict(*misfit(np, wrong))


@pytest.mark.parametrize("wrong", ["halo", "dots"])
def test_a_way_up_that_lacks_something_is_refused(wrong):
    r, e, dots = np.zeros((2, 8, 8)), np.zeros((2, 6, 6)), np.zeros((2, 3))
    if wrong == "halo":
        e = np.zeros((2, 4, 4))
    else:
        dots = np.zeros((2, 2))
    pad = (e.shape[1] - 2) // 2
    with pytest.raises(ValueError, match=wrong):
        native.prolong_smooth(
            r,
            2,
            r.copy(),
            e,
            pad,
            2,
            r.copy(),
            2,
            np.zeros((2, 4, 4)),
            dots,
            1.0,
            1.0,
            COEFFICIENTS[:0].copy(),
            1,
        )


def test_an_unknown_backend_lists_the_known():
    with pytest.raises(ChoiceError, match="reference, native, cupy"):
        backend("fortran")
