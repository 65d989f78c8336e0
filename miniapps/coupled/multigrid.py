"""A V-cycle for A = -laplace (five points) on a periodic grid in blocks: the preconditioner of the Poisson solves.

Coarse point I of an axis is fine point factor I, in the same block. Every coarser grid uses the five-point A, bilinear
interpolation P and averages P^T / factor^2. The smoother, Chebyshev's semi-iteration, is the same on the way down and
up. So M is symmetric, and positive except for the constant (Trottenberg, Oosterlee & Schueller, Multigrid, 2001).
Blocks compute on wide halos, so a grid costs one exchange on the way down and one on the way up. The coarsest grid is
gathered, and every rank solves it by Fourier transforms.

All operations are element-wise, or sums in a fixed order, and gathering only moves bits. So the bits depend only on the
blocks, not on their owners or the processor.
"""

import math
from collections.abc import Callable
from itertools import islice

import numpy as np

from kernels.elementary import cosine
from miniapps.coupled.waves import Waves
from miniapps.layout.blocks import Blocks
from miniapps.linear.krylov.chebyshev import semi_iteration
from miniapps.system.device import host, put

FACTORS = (4, 3, 2)  # fine points per coarse point along an axis, in order of preference
# Points that every rank may hold and solve as a whole; larger grids are coarsened if possible.
GATHERED = 4096
# Coarse points around a block that interpolation to the halo of the smoother reads, for any factor.
AROUND = 3


def factor_of(by: int, bx: int) -> int:
    """The factor by which blocks are coarsened, 1 for none. It divides both edges and is at most half an edge, since
    the halo of the smoother is twice the factor."""
    return next((f for f in FACTORS if by % f == 0 == bx % f and 2 * f <= min(by, bx)), 1)


def halo_of(by: int, bx: int) -> int:
    """The points around a block that its smoother needs on the way down and up."""
    return 2 * factor_of(by, bx)


def smoother(factor: int, inverse_h2: float) -> tuple[float, np.ndarray]:
    """(1 / theta, coefficients (factor - 1, 2)) of Chebyshev's semi-iteration on the frequencies that a coarser grid
    lacks: [(2 - 2 cos(pi / factor)), 8] / h^2. With degree factor - 1 it leaves about a fifth, for any factor.
    """
    bottom, top = 2.0 - 2.0 * float(cosine(math.pi / factor)), 8.0
    inverse_theta, factors = semi_iteration(bottom * inverse_h2, top * inverse_h2)
    return inverse_theta, np.array(list(islice(factors, factor - 1))).reshape(-1, 2)


def coarser(blocks: Blocks) -> Blocks:
    """The same blocks with the same owners on the coarser grid."""
    factor = factor_of(blocks.by, blocks.bx)
    ny, nx, by, bx = (n // factor for n in (blocks.ny, blocks.nx, blocks.by, blocks.bx))
    return Blocks(ny, nx, by, bx, blocks.size, blocks.rank, blocks.shuffle, blocks.owner)


def is_gathered(blocks: Blocks) -> bool:
    """Whether a grid below the finest is gathered, because it is small or cannot be coarsened."""
    return blocks.ny * blocks.nx <= GATHERED or factor_of(blocks.by, blocks.bx) == 1


def coarsest(blocks: Blocks) -> Blocks:
    """The gathered grid."""
    below = coarser(blocks)
    return below if is_gathered(below) else coarsest(below)


def v_cycle(blocks: Blocks, comm, kernels, h: float, threads: int, exchange, region) -> "Level":
    """The finest level for these blocks; `level.cycle()` applies M. Collective.

    `exchange(blocks, pad)` plans the exchange of `pad` points, corners included; `region(name, nbytes, call)` wraps
    `call` as a region of the trace.
    """
    return _level(blocks, comm, kernels, h, threads, exchange, region, finest=True)


def _level(blocks, comm, kernels, h, threads, exchange, region, finest=False):
    if not finest and is_gathered(blocks):
        return Gathered(blocks, comm, kernels, h, region)
    coarse_h = h * factor_of(blocks.by, blocks.bx)
    below = _level(coarser(blocks), comm, kernels, coarse_h, threads, exchange, region)
    return Level(blocks, kernels, h, threads, exchange, below, 0 if finest else AROUND)


class Level:
    """A grid with a coarser one, `below`.

    The operand of M is r, padded by `pad`. `cycle` computes u = M r, padded by `u_pad` (with its halo), w = A u, and
    `dots` = (r, u), (w, u), (r, r), float64 (own blocks, 3).
    """

    def __init__(self, blocks: Blocks, kernels, h: float, threads: int, exchange, below, u_pad: int):
        xp = kernels.xp
        self.pad, self.u_pad = halo_of(blocks.by, blocks.bx), u_pad
        self._below, self._kernels = below, kernels
        self.inverse_h2, self.threads = 1.0 / (h * h), threads
        self._factor = factor_of(blocks.by, blocks.bx)
        inverse_theta, coefficients = smoother(self._factor, self.inverse_h2)
        self._smoother = self.inverse_h2, inverse_theta, xp.asarray(coefficients), threads
        self.r, self._z = blocks.zeros(self.pad, xp=xp), blocks.zeros(self.pad, xp=xp)
        self.u, self.w = blocks.zeros(u_pad, xp=xp), blocks.zeros(xp=xp)
        self.dots = xp.zeros((len(blocks.own), 3))
        self._fill_r = exchange(blocks, self.pad)
        self._fill_u = exchange(blocks, u_pad) if u_pad else None

    def cycle(self) -> None:
        """Compute u = M r, w = A u and the dot products; fills the halo of r. Collective."""
        factor, below, around_r = self._factor, self._below, (self.r, self.pad, self._z)
        self._fill_r(self.r)
        self._kernels.smooth_restrict(*around_r, below.r, below.pad, factor, *self._smoother)
        below.cycle()
        results = (self.u, self.u_pad, self.w, self.dots)
        self._kernels.prolong_smooth(*around_r, below.u, AROUND, factor, *results, *self._smoother)
        if self._fill_u:
            self._fill_u(self.u)


class Gathered:
    """The coarsest grid: every rank solves A u = r with mean 0, and fills the halo of u."""

    pad = 0  # of r

    def __init__(self, blocks: Blocks, comm, kernels, h: float, region):
        xp = kernels.xp
        self.r, self.u = blocks.zeros(xp=xp), blocks.zeros(AROUND, xp=xp)
        self._comm, points = comm, blocks.by * blocks.bx
        self._received = np.empty(blocks.ny * blocks.nx)
        self._counts = np.bincount(blocks.owner, minlength=blocks.size) * points
        place = np.empty(blocks.count, np.int64)  # of each block among the received ones
        place[np.argsort(blocks.owner, kind="stable")] = np.arange(blocks.count)
        j, i = np.arange(blocks.ny)[:, None], np.arange(blocks.nx)
        block = j // blocks.by * blocks.columns + i // blocks.bx
        self._order = place[block] * points + j % blocks.by * blocks.bx + i % blocks.bx
        first = np.array([blocks.origin(int(block)) for block in blocks.own])
        j = (first[:, :1] + np.arange(-AROUND, blocks.by + AROUND)) % blocks.ny
        i = (first[:, 1:] + np.arange(-AROUND, blocks.bx + AROUND)) % blocks.nx
        self._windows = j[:, :, None] * blocks.nx + i[:, None, :]
        self._solve = direct(blocks.ny, blocks.nx, 1.0 / (h * h))
        self._gather = region("allgather.coarse", self.r.nbytes, self._allgather)

    def cycle(self) -> None:
        """Gather r, and solve for u. Collective."""
        self._gather()
        put(self.u, self._solve(self._received.take(self._order)).take(self._windows))

    def _allgather(self) -> None:
        self._comm.Allgatherv(host(self.r), [self._received, self._counts])


def direct(ny: int, nx: int, inverse_h2: float) -> Callable[[np.ndarray], np.ndarray]:
    """The solver of A u = r with mean 0 on a grid of ny x nx points: u = solve(r), both float64 (ny, nx)."""
    y, x = Waves(ny), Waves(nx)
    values = (x.eigenvalues()[:, None] + y.eigenvalues()) * inverse_h2
    values[0, 0] = math.inf
    inverse = 1.0 / values

    def solve(r: np.ndarray) -> np.ndarray:
        return y.backward(x.backward(x.forward(y.forward(r).T) * inverse).T)

    return solve
