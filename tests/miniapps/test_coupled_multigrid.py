"""The V-cycle of the coupled app: what it multiplies by, and that its solves cost the same for any grid."""

import numpy as np
import pytest
from mpi4py import MPI

from kernels import stencil
from kernels.guarantees import LEVELS
from miniapps.coupled.multigrid import coarsest, direct, factor_of, v_cycle
from miniapps.layout import fields, halo
from miniapps.layout.blocks import Blocks
from tests.miniapps.coupled_model import advance, model

NATIVE = stencil.backend("native")


class Cycle:
    """M and A of the V-cycle for arrays `(ny, nx)`, by one rank."""

    def __init__(self, ny, nx, by, bx, kernels=NATIVE):
        self.blocks, self.halos = Blocks(ny, nx, by, bx), []
        h = 2.0 * np.pi / nx
        self.level = v_cycle(
            self.blocks, MPI.COMM_SELF, kernels, h, 1, self._exchange, lambda name, nbytes, call: call
        )

    def __call__(self, r):
        """(M r, A M r)."""
        pad = self.level.pad
        inner = slice(pad, -pad)
        self.level.r[:, inner, inner] = fields.by_block(self.blocks, r)
        self.level.cycle()
        return tuple(
            fields.gather(self.blocks, MPI.COMM_SELF, field) for field in (self.level.u, self.level.w)
        )

    def _exchange(self, blocks, pad):
        self.halos.append(halo.plan(blocks, MPI.COMM_SELF, pad, pad))
        return self.halos[-1]

    def free(self):
        for planned in self.halos:
            planned.free()


@pytest.fixture
def cycle():
    cycles = []

    def of(*shape, **options):
        cycles.append(Cycle(*shape, **options))
        return cycles[-1]

    yield of
    for one in cycles:
        one.free()


def without_mean(rng, shape):
    x = rng.standard_normal(shape)
    return x - x.mean()


# by the factors 4, 3, 2 and 1; over two and three grids, of which one is gathered
SHAPES = [(32, 48, 8, 8), (36, 54, 6, 9), (24, 20, 4, 10), (35, 42, 5, 7), (320, 320, 16, 16)]


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_symmetric_positive_and_near_the_inverse(cycle, shape):
    multiply, rng = cycle(*shape), np.random.default_rng(1)
    a, b = (without_mean(rng, shape[:2]) for _ in range(2))
    (ma, ama), (mb, _) = multiply(a), multiply(b)
    assert np.vdot(a, mb) == pytest.approx(np.vdot(b, ma), rel=1e-9, abs=1e-12 * np.linalg.norm(ma))
    assert np.vdot(a, ma) > 0.0
    assert np.linalg.norm(a - ama) < 0.35 * np.linalg.norm(a)


def test_grids_are_coarsened_until_they_are_small_or_cannot_be():
    assert [factor_of(*edges) for edges in ((64, 64), (12, 8), (4, 8), (6, 9), (5, 7), (4, 4))] == [
        4,
        4,
        2,
        3,
        1,
        2,
    ]
    grids = [
        coarsest(Blocks(*shape)) for shape in ((128, 128, 16, 16), (512, 512, 32, 32), (2048, 2048, 64, 64))
    ]
    assert [(last.ny, last.by) for last in grids] == [(32, 4), (32, 2), (64, 2)]
    assert coarsest(Blocks(350, 350, 5, 7)).ny == 350


def test_the_coarsest_grid_is_solved_by_the_eigenvalues_of_the_operator():
    for ny, nx in ((6, 9), (1, 8), (300, 23)):
        x = without_mean(np.random.default_rng(2), (ny, nx))
        ax = stencil.backend("reference").minus_laplacian(np.pad(x, 1, mode="wrap")[None], 4.0)[0]
        error = np.abs(direct(ny, nx, 4.0)(ax) - x).max()
        assert error < 1e-11, (ny, nx, error)


def test_every_backend_gives_the_same_bits(cycle):
    r = without_mean(np.random.default_rng(3), (32, 48))
    by = [cycle(32, 48, 8, 8, kernels=kernels)(r) for kernels in (NATIVE, stencil.backend("reference"))]
    assert by[0][0].tobytes() == by[1][0].tobytes() and by[0][1].tobytes() == by[1][1].tobytes()


def test_iterations_do_not_grow_with_the_grid(tmp_path):
    """From random vorticity without a guess, and along two steps: up to 1024 times the points, two and three grids."""
    first = []
    for n, block in ((32, 8), (128, 16), (320, 16), (1024, 64)):
        settings = {"grid.nx": n, "grid.ny": n, "grid.bx": block, "grid.by": block, "closure.kind": "none"}
        with model(tmp_path, settings) as simulation:
            advance(simulation, 2)
            without, *guessed = simulation.record.iterations
        assert max(guessed) < without, (n, guessed)
        first.append(without)
    assert max(first) <= 8 and max(first) - min(first) <= 1, first


@pytest.mark.parametrize("guarantee", LEVELS)
def test_a_tight_tolerance_is_reached(tmp_path, guarantee):
    with model(
        tmp_path, {"closure.kind": "none", "poisson.tolerance": 1e-12}, guarantee=guarantee
    ) as simulation:
        advance(simulation, 2)
        assert simulation.record.failed_solves == 0 and max(simulation.record.iterations) <= 12
