"""The real Fourier transform along an axis, with the same bits on every processor.

Libraries of Fourier transforms take sines from the C library, and choose instructions by processor. Here a transform is
a product with a table of waves, or several if the axis is long; `kernels.contract` fixes the order of their sums, and
`kernels.elementary` the bits of the tables.

The waves of n points are orthonormal: the constant, then cosine and sine of each wavenumber, ascending; for even n the
last is the alternating one.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from kernels.contract import matmul
from kernels.elementary import cosine, sine
from miniapps.coupled.flow import angles

DENSE = 256  # points of the longest axis that is transformed by one product
RADIX = 32  # points of one product for longer axes, at most, unless their number has no such divisor


class Waves:
    """The waves of `n` points."""

    def __init__(self, n: int):
        self.n, self._numbers = n, (np.arange(n) + 1) // 2
        self._scale = np.sqrt(np.where((self._numbers == 0) | (2 * self._numbers == n), 1.0, 2.0) / n)
        if n <= DENSE:
            at = angles(self._numbers[:, None], n)
            even = (np.arange(n) % 2 == 0) & (self._numbers > 0)
            self.table = np.where(even[:, None], sine(at), cosine(at)) * self._scale[:, None]

    def eigenvalues(self) -> np.ndarray:
        """Of each wave, for the periodic second difference 2 x[j] - x[j - 1] - x[j + 1]; float64 (n,)."""
        half = sine(self._numbers * (np.pi / self.n))
        return 4.0 * (half * half)

    def forward(self, x: np.ndarray) -> np.ndarray:
        """The amplitudes of the waves along the first axis of x, float64 (n, m)."""
        if self.n <= DENSE:
            return np.asarray(matmul(self.table, x))
        re, im = _fourier(np.stack([x, np.zeros_like(x)]))
        amplitudes = np.empty(x.shape)
        amplitudes[0] = re[0]
        amplitudes[1::2] = re[1 : self.n // 2 + 1]
        amplitudes[2::2] = -im[1 : (self.n + 1) // 2]
        return amplitudes * self._scale[:, None]

    def backward(self, amplitudes: np.ndarray) -> np.ndarray:
        """The sum of the waves with these amplitudes, float64 (n, m): the inverse of `forward`."""
        if self.n <= DENSE:
            return np.asarray(matmul(self.table.T, amplitudes))
        scaled = amplitudes * self._scale[:, None]
        z = np.zeros((2, *scaled.shape))
        z[0, 0] = scaled[0]
        z[0, 1 : self.n // 2 + 1] = scaled[1::2]
        z[1, 1 : (self.n + 1) // 2] = scaled[2::2]
        return _fourier(z)[0]


def nbytes(n: int) -> int:
    """The bytes of the tables for `n` points."""
    if n <= DENSE:
        return 8 * n * n
    total = 0
    while n > 1:
        radix = radix_of(n)
        total, n = total + 32 * radix * radix + 16 * n, n // radix
    return total


def radix_of(n: int) -> int:
    """The largest divisor of n up to RADIX, or n if there is none above 1."""
    return next((r for r in range(min(n, RADIX), 1, -1) if n % r == 0), n)


@cache
def tables(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For the first product of a transform of n points: the table (2 radix, 2 radix) for real and imaginary parts, and
    the cosines and sines (radix, n / radix, 1) of the angles by which its results are turned."""
    radix = radix_of(n)
    at = angles(np.arange(radix)[:, None], radix)
    c, s = cosine(at), sine(at)
    turns = np.arange(radix)[:, None] * np.arange(n // radix) * (2.0 * np.pi / n)
    return np.block([[c, s], [-s, c]]), cosine(turns)[:, :, None], sine(turns)[:, :, None]


def _fourier(z: np.ndarray) -> np.ndarray:
    """The Fourier transform along the second axis of real and imaginary parts z, float64 (2, n, m): the sum over j of
    z[j] e^(-2 pi i j k / n) for each k (Cooley & Tukey 1965)."""
    _, n, m = z.shape
    radix = radix_of(n)
    table, c, s = tables(n)
    rest = n // radix
    re, im = matmul(table, z.reshape(2 * radix, rest * m)).reshape(2, radix, rest, m)
    if rest == 1:
        return np.stack([re[:, 0], im[:, 0]])
    turned = np.stack([re * c + im * s, im * c - re * s]).transpose(0, 2, 1, 3)
    return _fourier(turned.reshape(2, rest, radix * m)).reshape(2, n, m)
