"""What a rank has of each flow of an ensemble, and what the checks after a run go by."""

from dataclasses import dataclass, field
from typing import Any

from miniapps.coupled.closure import EddyViscosity
from miniapps.coupled.state import State


@dataclass
class Record:
    """What the checks after a run go by."""

    iterations: list[int] = field(default_factory=list)  # of each solve
    failed_solves: int = 0
    worst_residual: float = 0.0
    worst_budget: float = 0.0
    closure_errors: list[tuple[int, float]] = field(default_factory=list)


@dataclass
class Member:
    """One flow of an ensemble on this rank: what `--seed SEED` alone starts, step by step the same bits."""

    number: int
    seed: int
    surrogate: Any
    state: State = field(init=False)
    closure: EddyViscosity = field(init=False)
    energy: float = 0.0
    enstrophy: float = 0.0
