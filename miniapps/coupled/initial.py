"""Initial vorticity by global position, so that the bits of a block do not depend on its owner."""

import math
from collections.abc import Mapping

import numpy as np

from kernels import draws
from kernels.elementary import cosine, sine
from miniapps.coupled.flow import angles
from miniapps.layout.blocks import Blocks

RANDOM_MODES = 32
DECAYING_SQUARE = 5  # |k|^2 of every mode of the decaying solution
DECAYING_MODES = (
    (1, 2, 1.0, 0.3),
    (2, 1, 0.8, 1.1),
    (2, -1, 0.6, 2.0),
    (1, -2, 0.5, 0.7),
)  # kx, ky, weight, phase


def vorticity(
    name: str,
    blocks: Blocks,
    amplitude: float,
    wavenumber: int,
    seed: int,
    other: Mapping[int, int] | None = None,
) -> np.ndarray:
    """Initial vorticity `(own blocks, by, bx)`, float64, of root mean square `amplitude`. `other`: {block: seed} of own
    blocks with another seed."""
    modes = {"random": random_modes, "kolmogorov": kolmogorov_modes, "decaying": decaying_modes}[name]

    def field(by_seed: int) -> np.ndarray:
        kx, ky, weight, phase = modes(wavenumber, by_seed)
        weight = weight * (amplitude / math.sqrt(0.5 * math.fsum(weight * weight)))
        return evaluate(blocks, kx, ky, weight, phase)

    drawn = field(seed)
    for block, by_seed in (other or {}).items():
        drawn[blocks.index(block)] = field(by_seed)[blocks.index(block)]
    return drawn


def evaluate(blocks: Blocks, kx, ky, weight, phase) -> np.ndarray:
    """The sum of weight cos(kx x + ky y + phase) on every own block; modes are added in order, element by element.

    Sines and cosines are tabulated per mode and global row or column.
    """
    x = angles(np.asarray(kx)[:, None], blocks.nx) + np.asarray(phase)[:, None]
    y = angles(np.asarray(ky)[:, None], blocks.ny)
    cos_x, sin_x, cos_y, sin_y = cosine(x), sine(x), cosine(y), sine(y)
    field = blocks.zeros()
    for k, block in enumerate(blocks.own):
        row, column = blocks.origin(int(block))
        rows, columns = slice(row, row + blocks.by), slice(column, column + blocks.bx)
        for m in range(len(weight)):
            product = (
                cos_y[m, rows, None] * cos_x[m, None, columns]
                - sin_y[m, rows, None] * sin_x[m, None, columns]
            )
            field[k] += weight[m] * product
    return field


def random_modes(wavenumber: int, seed: int):
    """Modes with 2 <= |k| <= 8 of random phase and weight: a developed large-scale flow."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    ring = [(i, j) for i in range(-8, 9) for j in range(9) if 4 <= i * i + j * j <= 64 and (j > 0 or i > 0)]
    chosen = rng.choice(len(ring), RANDOM_MODES, replace=False)
    kx, ky = np.array(ring)[chosen].T
    weight = draws.normal(rng, RANDOM_MODES)
    return kx, ky, weight, draws.uniform(rng, 0.0, 2.0 * math.pi, RANDOM_MODES)


def kolmogorov_modes(wavenumber: int, seed: int):
    """The laminar Kolmogorov flow and, with 1e-6 of its weight, one mode per small wavenumber in x."""
    kx = np.array([0, 1, 2, 3])
    ky = np.array([wavenumber, 0, 0, 0])
    return kx, ky, np.array([1.0, 1e-6, 1e-6, 1e-6]), np.array([math.pi, 0.3, 0.8, 1.9])


def decaying_modes(wavenumber: int, seed: int):
    """Modes of one |k|^2: zeta = -|k|^2 psi, so J(psi, zeta) = 0 and zeta decays exactly by exp(-(nu |k|^2 + mu) t).

    On the grid the discrete J of two such modes vanishes only to second order, so this solution tests J.
    """
    kx, ky, weight, phase = (np.array(column) for column in zip(*DECAYING_MODES, strict=True))
    return kx, ky, weight, phase
