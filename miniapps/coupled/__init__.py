"""Forced two-dimensional turbulence with a learned subgrid closure: the coupled mini-app.

    mpirun -n 4 python -m miniapps.coupled --deck S --guarantee layout

Every time step solves Poisson equations by conjugate gradients (thousands of small all-reduces), evaluates a
convolutional network on every block, and every few steps trains it (one large all-reduce): the places where
simulation and learning codes lose reproducibility, in one small program. See docs/explanation/coupled.md.
"""

from miniapps.coupled.config import CoupledConfig
from miniapps.runner.main import App

APP = App(
    name="coupled",
    config=CoupledConfig,
    serves=("device", "duplicate", "processor"),
    summary="forced two-dimensional turbulence with a learned subgrid closure",
)
