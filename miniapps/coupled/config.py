"""Options of the coupled mini-app."""

from dataclasses import dataclass
from typing import Literal, get_args

from miniapps.checkpoints.options import Output
from miniapps.runner.config import HUGE, INT32, option, section

INITIAL = ("random", "kolmogorov", "decaying")
ClosureKind = Literal["none", "physics", "surrogate", "online"]
CLOSURES: tuple[str, ...] = get_args(ClosureKind)
EDGE = 2**20  # points along an edge of the grid, at most


def _backends() -> list[str]:
    import kernels.inference  # noqa: F401 - registers its variants
    from kernels.registry import variants

    # `eager` and `torch` would compute the same.
    return ["torch", *(variant.name for variant in variants("inference") if variant.name != "eager")]


@dataclass
class Grid:
    """The periodic grid and its logical blocks; the spacing is 2 pi / nx in both directions."""

    nx: int = option(128, help="grid points in x", minimum=4, maximum=EDGE, effect="size")
    ny: int = option(128, help="grid points in y", minimum=4, maximum=EDGE, effect="size")
    bx: int = option(16, help="points of a logical block in x", minimum=4, maximum=EDGE)
    by: int = option(16, help="points of a logical block in y", minimum=4, maximum=EDGE)


@dataclass
class Flow:
    """Physics of the flow; lengths in units where the domain is 2 pi wide."""

    forcing: float = option(
        1.0, help="amplitude of the Kolmogorov body force", unit="length/time^2", minimum=-HUGE, maximum=HUGE
    )
    wavenumber: int = option(4, help="wavenumber of the Kolmogorov force", minimum=1, maximum=EDGE)
    drag: float = option(0.05, help="linear drag", unit="1/time", minimum=0.0, maximum=HUGE)
    viscosity: float = option(
        1e-3, help="molecular viscosity", unit="length^2/time", minimum=0.0, maximum=HUGE
    )
    initial: str = option(
        "random",
        help="initial vorticity: random large-scale modes, the laminar Kolmogorov flow with a small perturbation, "
        "or an exact decaying solution (set forcing = drag = 0 and closure none)",
        choices=INITIAL,
    )
    amplitude: float = option(
        4.0, help="root mean square of the initial vorticity", unit="1/time", minimum=0.0, maximum=HUGE
    )
    ensemble: int = option(
        1,
        help="number of flows computed side by side, with the seeds SEED, SEED + 1, ...; each has the same bits alone",
        flag="--ensemble",
        minimum=1,
        maximum=4096,
        effect="size",
    )


@dataclass
class Time:
    """Time stepping: third-order SSP Runge-Kutta."""

    steps: int = option(40, help="time steps", minimum=0, flag="--steps", maximum=INT32 - 1)
    until: int | None = option(
        None,
        help="step after which this run stops, at most time.steps; none: after the last step",
        role="control",
        flag="--until",
        effect="until",
        minimum=0,
        maximum=INT32 - 1,
    )
    cfl: float = option(0.6, help="Courant number of the adaptive step", minimum=0.0, maximum=HUGE)
    dt: float = option(
        0.0, help="fixed time step; 0 adapts it to the flow", unit="time", minimum=0.0, maximum=HUGE
    )

    @property
    def last(self) -> int:
        """The step after which the run stops."""
        return self.steps if self.until is None else self.until


@dataclass
class Poisson:
    """Conjugate gradients for the streamfunction."""

    tolerance: float = option(1e-8, help="relative residual to reach", minimum=0.0, maximum=1.0)
    max_iterations: int = option(
        5000, help="iterations after which a solve counts as failed", minimum=1, maximum=INT32
    )


@dataclass
class Closure:
    """Subgrid closure."""

    kind: str = option(
        "online",
        help="none; physics: dynamic eddy viscosity every step; surrogate: only the network; "
        "online: the network drives the flow and learns from the physics every few steps",
        choices=CLOSURES,
        flag="--closure",
    )
    filters: int = option(8, help="test filters of the dynamic procedure", minimum=1, maximum=64)
    limit: float = option(
        0.2, help="upper bound of the coefficient C in nu_e = C h^2 |S|", minimum=0.0, maximum=HUGE
    )
    scale: float = option(
        8.0, help="vorticity that scales the network's input", unit="1/time", minimum=1e-12, maximum=HUGE
    )
    channels: int = option(8, help="channels of the network", minimum=1, maximum=1024)
    every: int = option(
        2, help="online: steps between optimiser steps", unit="steps", minimum=1, maximum=INT32
    )
    learning_rate: float = option(0.01, help="Adam's learning rate", minimum=0.0, maximum=HUGE)
    weights: str = option("", help="start from the weights in this checkpoint", flag="--weights")
    batch: str = option(
        "auto",
        help="evaluation of the network: block, by kernels that give a block its own bits (on a GPU one call of torch "
        "per block); rank, by torch in one batch (whose bits depend on the layout); auto: rank under guarantees none "
        "and run, block under layout and exact",
        choices=("auto", "block", "rank"),
        role="method",
        effect="guarantee",
    )
    inference: str = option(
        "torch",
        help="evaluates the network: torch, as closure.batch says, or a backend of kernels.inference, in one "
        "call per rank",
        choices=_backends,
        role="method",
        flag="--inference",
    )


@dataclass
class CoupledOutput(Output):
    """Files beside the trace."""

    snapshot_every: int = option(
        0,
        help="steps between field snapshots; 0: none",
        role="control",
        flag="--snapshot-every",
        minimum=0,
        maximum=INT32,
    )


@dataclass
class CoupledConfig:
    """All options of `python -m miniapps.coupled` beside the common ones."""

    grid: Grid = section(Grid)
    flow: Flow = section(Flow)
    time: Time = section(Time)
    poisson: Poisson = section(Poisson)
    closure: Closure = section(Closure)
    output: CoupledOutput = section(CoupledOutput)
