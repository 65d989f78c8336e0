"""The coupled app solves the equations that it states: orders of convergence, invariants, an instability, learning."""

import numpy as np
import pytest

from miniapps.coupled import flow
from miniapps.coupled.checks import decaying_error
from miniapps.coupled.flow import view
from miniapps.coupled.physics import HALO
from tests.miniapps.coupled_model import advance, model

UNFORCED = {"flow.forcing": 0.0, "flow.drag": 0.0, "closure.kind": "none"}


def square(n, block=16):
    return {"grid.nx": n, "grid.ny": n, "grid.bx": block, "grid.by": block}


def test_second_order_against_an_exact_decaying_solution(tmp_path):
    errors = []
    for n in (32, 64, 128):
        settings = {
            **UNFORCED,
            **square(n),
            "flow.initial": "decaying",
            "flow.viscosity": 0.02,
            "flow.amplitude": 2.0,
        }
        steps = 10 * n // 32
        with model(tmp_path, {**settings, "time.dt": 0.5 / steps, "poisson.tolerance": 1e-10}) as simulation:
            advance(simulation, steps)
            assert simulation.state.time == pytest.approx(0.5)
            errors.append(decaying_error(simulation))
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (orders > 1.9).all(), (errors, orders)


def test_energy_and_enstrophy_of_the_inviscid_limit_are_conserved_to_the_order_of_the_time_stepping(tmp_path):
    drifts = []
    for steps in (16, 32, 64):
        settings = {**UNFORCED, **square(32), "flow.viscosity": 0.0, "time.dt": 0.8 / steps}
        with model(tmp_path, {**settings, "poisson.tolerance": 1e-12}) as simulation:
            energy, enstrophy = simulation.member.energy, simulation.member.enstrophy
            advance(simulation, steps)
            drifts.append(
                (
                    abs(simulation.member.energy / energy - 1.0),
                    abs(simulation.member.enstrophy / enstrophy - 1.0),
                )
            )
    orders = np.log2(np.array(drifts[:-1]) / np.array(drifts[1:]))
    assert (orders > 2.7).all(), (drifts, orders)


def test_arakawas_jacobian_conserves_energy_and_enstrophy_to_rounding():
    rng = np.random.default_rng(1)
    psi, zeta = (np.pad(rng.standard_normal((24, 32)), 1, mode="wrap")[None] for _ in range(2))
    j = flow.jacobian(psi, zeta, 1, 0.1)
    for field in (psi, zeta):
        assert abs(np.sum(view(field, 1) * j)) < 1e-12 * np.sum(np.abs(view(field, 1) * j))
    # and it is the Jacobian: J(x, y) of linear functions is 1
    y, x = np.mgrid[0:8, 0:8] * 0.1
    np.testing.assert_allclose(flow.jacobian(x[None], y[None], 1, 0.1), 1.0, rtol=1e-12)


def growth_rate(wavenumber, alpha, shear, viscosity, modes=40):
    """Largest growth rate of exp(i alpha x) on u = shear/k sin(k y), by the linearised equation in Fourier space."""
    k, m = wavenumber, np.arange(-modes, modes + 1)
    matrix = np.diag(-viscosity * (alpha**2 + m**2)).astype(float)
    for row, mode in enumerate(m):
        for sign in (1, -1):
            column = mode - sign * k + modes
            if 0 <= column < len(m):
                square_k = alpha**2 + m[column] ** 2
                matrix[row, column] += sign * (-alpha * shear / (2 * k) + alpha * shear * k / (2 * square_k))
    return np.linalg.eigvals(matrix).real.max()


@pytest.mark.slow
def test_linear_growth_of_a_perturbed_kolmogorov_flow(tmp_path):
    k, viscosity, shear = 4, 0.02, 6.0
    expected = {alpha: growth_rate(k, alpha, shear, viscosity) for alpha in (1, 2, 3)}
    errors = []
    for n in (64, 128):
        settings = {**square(n), "flow.wavenumber": k, "flow.viscosity": viscosity, "flow.drag": 0.0}
        settings |= {"flow.forcing": viscosity * k * shear, "flow.initial": "kolmogorov"}
        settings |= {
            "flow.amplitude": shear / np.sqrt(2.0),
            "closure.kind": "none",
            "poisson.tolerance": 1e-10,
        }
        with model(tmp_path, {**settings, "time.dt": 0.02}) as simulation:
            sizes = []
            for _ in range(2):
                advance(simulation, 150)
                zeta = (
                    view(simulation.state.zeta, HALO)
                    .reshape(n // 16, n // 16, 16, 16)
                    .swapaxes(1, 2)
                    .reshape(n, n)
                )
                sizes.append(np.abs(np.fft.fft2(zeta)).sum(axis=0)[1:4])
        measured = np.log(sizes[1] / sizes[0]) / 3.0
        errors.append([abs(measured[a - 1] / expected[a] - 1.0) for a in (1, 2, 3)])
    assert max(expected.values()) > 0.5  # it is unstable
    coarse, fine = np.array(errors)
    assert (fine < 0.02).all() and (fine < 0.4 * coarse).all(), (expected, errors)


def test_the_surrogate_learns_the_physics_while_the_flow_runs(tmp_path):
    """After 120 steps it is closer to the dynamic closure than the best constant coefficient, and than 0.72."""
    with model(tmp_path, {**square(64), "closure.kind": "online", "closure.every": 1}) as simulation:
        advance(simulation, 120)
        simulation.fill_wide(simulation.state.zeta)
        simulation.fill_wide(simulation.state.psi)
        coefficient, magnitude = simulation.member.closure._physics(
            simulation.state.zeta, simulation.state.psi
        )
        inner = (slice(None), slice(1, -1), slice(1, -1))
        physics, strain = (coefficient * magnitude)[inner], magnitude[inner]
        constant = np.sum(physics * strain) / np.sum(strain * strain)
        best_constant = np.linalg.norm(physics - constant * strain) / np.linalg.norm(physics)
        history = [error for _, error in simulation.record.closure_errors]
    assert history[-1] < best_constant and history[-1] < 0.72, (history[::10], best_constant)


@pytest.mark.parametrize("closure", ["none", "physics", "surrogate", "online"])
def test_the_energy_budget_closes_for_every_closure(tmp_path, closure):
    with model(tmp_path, {**square(64), "closure.kind": closure, "closure.every": 2}) as simulation:
        advance(simulation, 10)
        assert simulation.record.worst_budget < 1e-5 and simulation.record.failed_solves == 0
        assert np.isfinite(simulation.member.energy) and simulation.member.energy > 0.0
