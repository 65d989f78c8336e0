"""State of the flow on this rank, its fingerprint and its checkpoints."""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from miniapps import fields
from miniapps.config import UsageError
from miniapps.coupled.flow import view
from miniapps.coupled.physics import HALO
from miniapps.device import host, put
from miniapps.trace import fingerprint

FORMAT = "fpna-checkpoint"
SCHEMA = 1


@dataclass
class State:
    """What a step starts from: everything that a checkpoint must hold for the same bits later."""

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
    """32 hex digits over vorticity and streamfunction by global block index, and the weights. Collective.

    The same for any layout if the bits are; every rank returns it.
    """
    zeta, psi = host(view(state.zeta, HALO)), host(view(state.psi, HALO))
    parts = [(int(block), fingerprint(zeta[k]) + fingerprint(psi[k])) for k, block in enumerate(blocks.own)]
    gathered = comm.gather(parts)
    digest = None
    if comm.rank == 0:
        hasher = hashlib.blake2b(digest_size=16)
        for _, part in sorted(part for parts in gathered for part in parts):
            hasher.update(part)
        if weights is not None:
            hasher.update(fingerprint(weights))
        digest = hasher.hexdigest()
    return comm.bcast(digest)


def problem_of(config) -> dict:
    """The options that a run and the checkpoint that it continues from must share, flat."""
    sections = asdict(config)
    kept = {s: sections[s] for s in ("grid", "flow", "time", "poisson", "closure")}
    flat = {f"{s}.{name}": value for s, options in kept.items() for name, value in options.items()}
    for free in ("time.steps", "closure.batch", "closure.weights"):
        del flat[free]
    return flat


def save_checkpoint(path: Path, blocks, comm, state: State, surrogate, config, seed: int) -> None:
    """Write a checkpoint: one file, global arrays, for any number of ranks. Collective."""
    arrays = {
        "zeta": fields.gather(blocks, comm, view(state.zeta, HALO)),
        "psi": fields.gather(blocks, comm, view(state.psi, HALO)),
        "slope": fields.gather(blocks, comm, state.slope),
        "curvature": fields.gather(blocks, comm, state.curvature),
    }
    if comm.rank:
        return
    if surrogate is not None:
        arrays |= {f"surrogate.{name}": value for name, value in surrogate.state().items()}
    attributes = {
        "format": FORMAT,
        "schema": SCHEMA,
        "app": "coupled",
        "seed": seed,
        "step": state.step,
        "time": state.time,
        "last_dt": state.last_dt,
        **{f"config.{key}": value for key, value in problem_of(config).items()},
    }
    fields.save(path, attributes, arrays)


def load_checkpoint(path: str, blocks, comm, state: State, surrogate) -> None:
    """Take up a checkpoint that `check_checkpoint` let pass. Collective."""
    attributes, arrays = read_checkpoint("--restart", path) if comm.rank == 0 else (None, {})
    attributes = comm.bcast(attributes)
    targets = {
        "zeta": view(state.zeta, HALO),
        "psi": view(state.psi, HALO),
        "slope": state.slope,
        "curvature": state.curvature,
    }
    for name, target in targets.items():
        put(target, fields.scatter(blocks, comm, arrays.get(name)))
    state.step, state.time = int(attributes["step"]), float(attributes["time"])
    state.last_dt = float(attributes["last_dt"])
    if surrogate is not None:
        load_weights(comm, surrogate, arrays)


def load_weights(comm, surrogate, arrays) -> None:
    """Broadcast rank 0's `surrogate.*` arrays and take them up. Collective."""
    prefix = "surrogate."
    surrogate.load(comm.bcast({k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}))


def read_checkpoint(option: str, path: str) -> tuple[dict, dict[str, np.ndarray]]:
    """(attributes, arrays) of a checkpoint. Raises UsageError naming option, file and remedy."""
    try:
        attributes, arrays = fields.load(Path(path))
    except OSError as error:
        raise UsageError(f"{option} {path}: cannot read it: {error}") from error
    if attributes.get("format") != FORMAT or attributes.get("app") != "coupled":
        raise UsageError(f"{option} {path}: not a checkpoint of coupled; give one of RUN/checkpoints/*.h5")
    if attributes["schema"] > SCHEMA:
        raise UsageError(
            f"{option} {path}: written by a newer version (schema {attributes['schema']}, known up to {SCHEMA}); "
            "update this installation"
        )
    return attributes, arrays


def check_checkpoint(option: str, path: str, config, seed: int, only: tuple[str, ...] | None = None) -> None:
    """Raise UsageError unless `path` is a checkpoint of the same problem and seed, or agrees in the options `only`."""
    attributes, arrays = read_checkpoint(option, path)
    stored = {key.removeprefix("config."): value for key, value in attributes.items()}
    wanted = problem_of(config) | {"seed": seed}
    keys = only or tuple(wanted)
    differing = [
        f"{key} = {stored.get(key)} there, {wanted[key]} here"
        for key in keys
        if stored.get(key) != wanted[key]
    ]
    if (
        "closure.channels" in keys
        and config.closure.kind in ("surrogate", "online")
        and not any(name.startswith("surrogate.") for name in arrays)
    ):
        raise UsageError(
            f"{option} {path}: it holds no weights, since its run had no network; give a checkpoint of a run with "
            "--closure surrogate or online"
        )
    if differing:
        raise UsageError(
            f"{option} {path}: of another problem: {'; '.join(differing)}; start with the same deck and options"
        )
