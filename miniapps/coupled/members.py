"""The part of each flow of an ensemble on a rank, and the data for the checks after a run."""

from dataclasses import dataclass, field
from typing import Any

from miniapps.coupled.closure import EddyViscosity
from miniapps.coupled.state import State


@dataclass
class Record:
    """Data for the checks after a run."""

    iterations: list[int] = field(default_factory=list)  # of each solve
    failed_solves: int = 0
    worst_residual: float = 0.0
    worst_budget: float = 0.0
    closure_errors: list[tuple[int, float]] = field(default_factory=list)


@dataclass
class Member:
    """One flow of an ensemble on this rank, with the same bits as a single flow with its seed."""

    number: int
    seed: int
    surrogate: Any
    state: State = field(init=False)
    closure: EddyViscosity = field(init=False)
    energy: float = 0.0
    enstrophy: float = 0.0
