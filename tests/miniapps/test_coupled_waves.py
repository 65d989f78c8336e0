"""The real Fourier transform of the coarsest grid: what it computes, by one product and by several."""

import numpy as np
import pytest

from miniapps.coupled import waves
from miniapps.coupled.waves import Waves, nbytes

SIZES = [1, 2, 3, 4, 9, 32, 35, 64, 131, 256, 350, 1024, 1018]


def defined(x):
    """The amplitudes of the columns of x, by NumPy's transform."""
    n = len(x)
    f = np.fft.rfft(x, axis=0)
    out = np.empty_like(x)
    out[0] = f[0].real
    out[1::2] = f[1 : n // 2 + 1].real
    out[2::2] = -f[1 : (n + 1) // 2].imag
    scale = np.sqrt(np.full(n, 2.0) / n)
    scale[0] = np.sqrt(1.0 / n)
    if n % 2 == 0:
        scale[-1] = scale[0]
    return out * scale[:, None]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dense", [1, 2**20])
def test_it_is_the_fourier_transform_by_one_product_and_by_several(n, dense, monkeypatch):
    monkeypatch.setattr(waves, "DENSE", dense)
    x, own = np.random.default_rng(n).standard_normal((n, 3)), Waves(n)
    size = np.linalg.norm(x)
    assert np.abs(own.forward(x) - defined(x)).max() < 1e-14 * size
    assert np.abs(own.backward(own.forward(x)) - x).max() < 1e-14 * size


@pytest.mark.parametrize("n", [3, 8, 35, 300])
def test_waves_are_eigenvectors_of_the_second_difference(n):
    own = Waves(n)
    table = own.backward(np.eye(n))
    applied = 2.0 * table - np.roll(table, 1, axis=0) - np.roll(table, -1, axis=0)
    assert np.abs(applied - table * own.eigenvalues()).max() < 1e-14


def test_the_memory_of_tables_is_that_of_their_arrays():
    for n in (32, 1024, 2 * 509):
        own = Waves(n)
        if n <= waves.DENSE:
            assert own.table.nbytes == nbytes(n)
            continue
        own.forward(np.zeros((n, 1)))
        held, rest = 0, n
        while rest > 1:
            held += sum(table.nbytes for table in waves.tables(rest))
            rest //= waves.radix_of(rest)
        assert held == nbytes(n)
