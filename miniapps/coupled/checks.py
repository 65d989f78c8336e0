"""Verification after every run; each check can fail."""

import math

import numpy as np

from kernels.elementary import exponential
from miniapps.coupled.flow import view
from miniapps.coupled.initial import DECAYING_SQUARE, vorticity
from miniapps.coupled.physics import HALO
from miniapps.runner.outcome import Check
from miniapps.system.device import host

# |E(t+dt) - E(t) - dt power| / (dt E |zeta|): the error of the energy budget, per unit of the energy that advection
# moves. Arakawa's Jacobian conserves energy; the error is third-order in dt, plus the tolerance of the Poisson solves.
BUDGET_BOUND = 1e-4


def verify(model) -> list[Check]:
    """The checks of a finished repeat, the same on every rank. Collective."""
    record, config = model.record, model.config
    checks = [
        Check(
            "poisson",
            record.failed_solves == 0,
            f"{record.failed_solves} of {len(record.iterations)} solves did not reach poisson.tolerance = "
            f"{config.poisson.tolerance:g} in {config.poisson.max_iterations} iterations; worst residual "
            f"{record.worst_residual:.3g}",
        ),
        Check(
            "energy budget",
            record.worst_budget <= BUDGET_BOUND,
            f"a step gained or lost {record.worst_budget:.3g} of the energy that advection moves "
            f"(bound {BUDGET_BOUND:g})",
        ),
        _finite(model),
    ]
    if model.duplicates is not None:
        checks.append(model.duplicates.verdict())
    if config.flow.initial == "decaying":
        checks.append(_exact_solution(model))
    return checks


def _finite(model) -> Check:
    wrong = [
        f"energy {member.energy:g}, enstrophy {member.enstrophy:g}"
        + f" of member {member.number}" * (len(model.members) > 1)
        for member in model.members
        if not (math.isfinite(member.energy) and math.isfinite(member.enstrophy))
    ]
    first = model.members[0]
    return Check(
        "finite", not wrong, ", ".join(wrong) or f"energy {first.energy:g}, enstrophy {first.enstrophy:g}"
    )


def decaying_error(model) -> float:
    """The largest |zeta - exact| divided by the largest |exact|, for flow.initial = decaying. Collective."""
    flow_config, blocks = model.config.flow, model.blocks
    start = vorticity("decaying", blocks, flow_config.amplitude, flow_config.wavenumber, model.ctx.seed)
    exact = start * exponential(-flow_config.viscosity * DECAYING_SQUARE * model.state.time)
    local = (float(np.max(np.abs(host(view(model.state.zeta, HALO)) - exact))), float(np.max(np.abs(exact))))
    worst, scale = (max(column) for column in zip(*model.comm.allgather(local), strict=True))
    return worst / scale


def _exact_solution(model) -> Check:
    """The check of second order in space: the error stays below (k h)^2 times the time in turnovers."""
    error = decaying_error(model)
    turnovers = 1.0 + model.config.flow.amplitude * model.state.time
    bound = DECAYING_SQUARE * model.h * model.h * turnovers
    return Check(
        "exact solution",
        error <= bound,
        f"relative error {error:.3g}, bound |k|^2 h^2 turnovers = {bound:.3g}",
    )
