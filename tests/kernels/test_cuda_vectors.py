"""The fused vector updates made for a GPU give the bits of the plain NumPy definition.

They need a device; `test_cuda_on_host.py` runs this file without one.
"""

import math

import numpy as np
import pytest

from kernels.vectors import backend, reference
from miniapps.system.environment import no_cuda

from .vectors import CG, CG_DOTS, outcome, same, same_bits, starts, vectors

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(bool(no_cuda()), reason=no_cuda() or "")]
both_types = pytest.mark.parametrize("dtype", [np.float64, np.float32])
TERMS = "p = 2*u*p - x + u*x - alpha*r; s = -s; w = beta*u*w; x = .5*p + 1e-3*p - p + p"


@pytest.fixture
def gpu():
    return backend("cupy")


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 1000, 4097])
@pytest.mark.parametrize("steps, dots", [(CG, CG_DOTS), (TERMS, "p.x"), (CG, ""), (TERMS, "")])
@both_types
def test_the_bits_are_those_of_the_definition(gpu, n, steps, dots, dtype):
    given, scalars = vectors(n, dtype), dict(alpha=0.3, beta=-1.7)
    expected = outcome(reference, given, steps, dots, starts(n), **scalars)
    assert same(outcome(gpu, given, steps, dots, starts(n), **scalars), expected)


@both_types
def test_dot_products_alone(gpu, dtype):
    given = vectors(3000, dtype)
    results = [outcome(module, given, "", CG_DOTS, starts(3000)) for module in (gpu, reference)]
    assert same(*results)


def test_no_block_at_all(gpu):
    nothing = outcome(gpu, vectors(0), CG, CG_DOTS, np.zeros(1, np.int64), alpha=1.0, beta=1.0)
    assert nothing["partials"].shape == (0, 3)


@both_types
@pytest.mark.parametrize("scalar", [-0.0, math.inf, math.nan, 1e300, 1e-320])
def test_scalars_and_elements_that_are_zero_or_not_finite(gpu, dtype, scalar):
    values = np.array([-0.0, 0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 1e-38, 3e38], dtype)
    x, y = (np.ascontiguousarray(a.reshape(-1)) for a in np.meshgrid(values, values))
    steps, dots = "y = x - a*y; z = a*x; x = a*x*y - x", "x.y z.z"
    results = [outcome(module, dict(x=x, y=y, z=y), steps, dots, a=scalar) for module in (gpu, reference)]
    assert same(*results)


def test_two_names_of_one_vector_are_one_vector(gpu):
    given = vectors(2000)
    r, q = (gpu.xp.asarray(given[name]) for name in "rp")
    gpu.fuse(dict(r=r, z=r, q=q), "z = r + a*q; r = z - a*q")(a=0.3)
    assert same_bits(r.get(), (given["r"] + 0.3 * given["p"]) - 0.3 * given["p"])


@pytest.mark.parametrize("wrong", ["host", "dtype", "strided", "short", "partials"])
def test_vectors_that_do_not_fit_are_refused(gpu, wrong):
    xp = gpu.xp
    x, y, partials = xp.zeros(100), xp.zeros(100), xp.zeros((1, 1))
    match wrong:
        case "host":
            y = np.zeros(100)
        case "dtype":
            y = xp.zeros(100, xp.float32)
        case "strided":
            y = xp.zeros(200)[::2]
        case "short":
            y = xp.zeros(99)
        case "partials":
            partials = np.zeros((1, 1))
    with pytest.raises((TypeError, ValueError), match="partials" if wrong == "partials" else "vector"):
        gpu.fuse(dict(x=x, y=y), "x = x + y", "x.y", np.array([0, 100]))(partials)
