"""State of the flow on this rank, its fingerprint, and the options that define its problem."""

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from miniapps.coupled.flow import view
from miniapps.coupled.physics import HALO
from miniapps.system.device import host
from miniapps.trace import fingerprint


@dataclass
class State:
    """The state before a step: all data from which a run continues with the same bits."""

    zeta: Any  # vorticity, (own blocks, by + 2 HALO, bx + 2 HALO) float64
    psi: Any  # streamfunction, likewise
    slope: (
        Any  # last_dt times d(psi)/dt, (own blocks, by, bx), and last_dt^2 / 2 times the second derivative:
    )
    curvature: Any  # from the last step, they extrapolate the first guess of the Poisson solves
    last_dt: float = 0.0
    time: float = 0.0
    step: int = 0

    @classmethod
    def at_rest(cls, blocks, xp=np) -> "State":
        """Zero flow at time 0."""
        return cls(
            blocks.zeros(HALO, xp=xp), blocks.zeros(HALO, xp=xp), blocks.zeros(xp=xp), blocks.zeros(xp=xp)
        )


def state_fingerprint(blocks, comm, state: State, weights: np.ndarray | None) -> str:
    """The hash of vorticity and streamfunction by global block, and of the weights: 32 hex digits. Collective.

    Equal bits give the same hash on any layout; every rank returns it.
    """
    zeta, psi = host(view(state.zeta, HALO)), host(view(state.psi, HALO))
    parts = [(int(block), fingerprint(zeta[k]) + fingerprint(psi[k])) for k, block in enumerate(blocks.own)]
    gathered = comm.gather(parts)
    digest = None
    if comm.rank == 0:
        digest = combined((part for _, part in sorted(part for parts in gathered for part in parts)), weights)
    return comm.bcast(digest)


def combined(parts: Iterable[bytes], weights: np.ndarray | None) -> str:
    """The `state_fingerprint` from its `parts`, the fingerprints of vorticity and streamfunction of each block."""
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        hasher.update(part)
    if weights is not None:
        hasher.update(fingerprint(weights))
    return hasher.hexdigest()


def together(digests: list[str]) -> str:
    """The fingerprint of an ensemble from those of its members; a single flow keeps its own."""
    if len(digests) == 1:
        return digests[0]
    return hashlib.blake2b("".join(digests).encode(), digest_size=16).hexdigest()


def problem_of(config) -> dict:
    """The options that a run and the checkpoint that it continues from must share, flat."""
    sections = asdict(config)
    kept = {s: sections[s] for s in ("grid", "flow", "time", "poisson", "closure")}
    flat = {f"{s}.{name}": value for s, options in kept.items() for name, value in options.items()}
    for free in ("time.steps", "time.until", "closure.batch", "closure.weights", "flow.ensemble"):
        del flat[free]
    return flat
