"""What a checkpoint of a training holds: weights and velocities, and at which step."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from math import prod
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from miniapps.checkpoints import file, restart
from miniapps.checkpoints.file import Checkpoint, Head, Kind
from miniapps.trace import fingerprint
from miniapps.training.data import EDGE
from miniapps.training.models import network
from miniapps.training.optimiser import MomentumSGD

Width = Annotated[int, msgspec.Meta(ge=1, le=2**14)]
WEIGHTS, VELOCITY = "weights.", "velocity."


class Shapes(msgspec.Struct):
    """The options that decide which arrays a checkpoint holds."""

    data: Literal["fashion", "mnist5000", "digits", "blobs"] = msgspec.field(name="data.name")
    name: Literal["mlp", "cnn"] = msgspec.field(name="model.name")
    hidden: Width = msgspec.field(name="model.hidden")
    channels: Width = msgspec.field(name="model.channels")

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """{name: shape} of weights and biases."""
        return network(self.name).shapes(self, EDGE[self.data])


def problem_of(config) -> dict[str, Any]:
    """The options that a run and the checkpoint that it continues from must share, flat."""
    kept = {name: asdict(getattr(config, name)) for name in ("data", "model", "training", "seeds")}
    flat = {
        f"{section}.{name}": value for section, options in kept.items() for name, value in options.items()
    }
    for free in ("data.dir", "training.until", "training.overlap", "training.calls", "training.wire"):
        del flat[free]
    return flat


def save_checkpoint(ctx, step: int, optimiser: MomentumSGD) -> None:
    """Write RUN/checkpoints/repeat-R-step-S.h5, for any number of ranks; all hold the same, and rank 0 writes."""
    if ctx.rank:
        return
    options = problem_of(ctx.config)
    names = msgspec.convert(options, Shapes).tensors()
    arrays = {f"{WEIGHTS}{name}": array for name, array in zip(names, optimiser.weights, strict=True)}
    arrays |= {f"{VELOCITY}{name}": array for name, array in zip(names, optimiser.velocities, strict=True)}
    file.write(ctx, KIND, step, options, arrays)


def load_checkpoint(ctx, optimiser: MomentumSGD) -> int:
    """Take up the checkpoint of `output.restart`, verified again, for it may have changed; the step that it is of.
    Collective."""
    step = -1
    if ctx.rank == 0:
        checkpoint = verify(ctx.config, ctx.seed)
        restart.log_comparison(ctx, ctx.config.output.restart, checkpoint)
        step = checkpoint.head.step
        for prefix, arrays in ((WEIGHTS, optimiser.weights), (VELOCITY, optimiser.velocities)):
            for name, array in zip(checkpoint.shapes.tensors(), arrays, strict=True):
                array[...] = checkpoint.arrays[f"{prefix}{name}"]
    for array in (*optimiser.weights, *optimiser.velocities):
        ctx.comm.Bcast(array)
    return ctx.comm.bcast(step)


def check_restart(config, seed: int) -> None:
    """Raise UsageError unless this run can continue from the checkpoint of `output.restart`."""
    restart.compare_with_trace(config.output.restart, verify(config, seed))


def verify(config, seed: int) -> Checkpoint:
    """The checkpoint of `output.restart`, of the same problem and seed, at a step that this run has."""
    options = problem_of(config)
    need = 8 * sum(map(prod, msgspec.convert(options, Shapes).tensors().values()))
    last = config.training.last
    return restart.verify(config.output.restart, KIND, options, seed, last, "--until", need)


def combined(prints: Iterable[bytes]) -> str:
    """32 hex digits over the fingerprints of all weights and biases, in the order of the model."""
    return hashlib.blake2b(b"".join(prints), digest_size=16).hexdigest()


def fingerprints(weights: Sequence[np.ndarray]) -> list[bytes]:
    """Of each tensor."""
    return [fingerprint(array) for array in weights]


def _expected(shapes: Shapes) -> dict[str, tuple[str, tuple[int, ...]]]:
    tensors = shapes.tensors().items()
    return {
        f"{prefix}{name}": ("float32", shape) for prefix in (WEIGHTS, VELOCITY) for name, shape in tensors
    }


def _check(head: Head, shapes: Shapes, arrays: dict[str, np.ndarray], where: str) -> None:
    """Any finite numbers are a state."""


def _prints(shapes: Shapes, arrays: dict[str, np.ndarray]) -> dict[str, list[bytes]]:
    return {"weights": fingerprints([arrays[f"{WEIGHTS}{name}"] for name in shapes.tensors()])}


def _fingerprint(shapes: Shapes, arrays: dict[str, np.ndarray]) -> str:
    return combined(_prints(shapes, arrays)["weights"])


KIND = Kind("training", 1, Head, Shapes, _expected, _check, _prints, _fingerprint)
