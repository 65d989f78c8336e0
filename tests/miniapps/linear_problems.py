"""Small linear systems whose answers and spectra are known, and the real matrices of ../shared/data."""

from functools import cache

import numpy as np
import pytest
import scipy.io

from tests.shared_data import shared_data


def random(seed: int = 1):
    return np.random.default_rng(seed)


def with_spectrum(values, seed: int = 1):
    """A dense symmetric matrix with these eigenvalues."""
    q = np.linalg.qr(random(seed).standard_normal((len(values), len(values))))[0]
    matrix = (q * values) @ q.T
    return 0.5 * (matrix + matrix.T)


def well_conditioned(n: int = 60):
    """Symmetric, positive, condition 100, and with rows of different size."""
    scale = np.geomspace(1.0, 10.0, n)
    return scale[:, None] * with_spectrum(np.linspace(1.0, 100.0, n)) * scale


def ill_conditioned(n: int = 60, condition: float = 1e8):
    """Symmetric and positive."""
    return with_spectrum(np.geomspace(1.0 / condition, 1.0, n))


def nonsymmetric(n: int = 60, skew: float = 2.0):
    """Its symmetric part is positive, the skew part of the same size."""
    other = random(2).standard_normal((n, n))
    return with_spectrum(np.linspace(1.0, 10.0, n)) + skew * (other - other.T) / np.sqrt(n)


def diagonal_inverse(matrix):
    """M r with the inverse of the diagonal."""
    diagonal = matrix.diagonal()
    return lambda r: r / diagonal.astype(r.dtype)


def relative_residual(matrix, b, x):
    """|b - A x| / |b|."""
    return np.linalg.norm(b - matrix @ x) / np.linalg.norm(b)


@cache
def real(name: str):
    """A matrix of the shared data in CSR, found beside the repository or above; skips the test where there is none."""
    path = shared_data(f"{name}.mtx")
    if path is not None:
        return scipy.io.mmread(path).tocsr()
    pytest.skip(f"no shared/data/{name}.mtx beside the repository")
