"""What a checkpoint of a training holds: weights, what optimiser and feedback keep, and at which step."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import fields
from math import prod
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from miniapps.checkpoints import file, restart
from miniapps.checkpoints.file import Checkpoint, Head, Kind
from miniapps.trace import fingerprint
from miniapps.training import feedback
from miniapps.training.config import SAMPLES
from miniapps.training.data import EDGE
from miniapps.training.feedback import LOST, LOST_OF_TOTAL
from miniapps.training.models import network
from miniapps.training.optimiser import OPTIMISERS

Width = Annotated[int, msgspec.Meta(ge=1, le=2**14)]
WEIGHTS = "weights."


class Shapes(msgspec.Struct):
    """The options that decide which arrays a checkpoint holds."""

    data: Literal["fashion", "mnist5000", "digits", "blobs", "cora"] = msgspec.field(name="data.name")
    name: Literal["mlp", "cnn", "graphsage"] = msgspec.field(name="model.name")
    hidden: Width = msgspec.field(name="model.hidden")
    channels: Width = msgspec.field(name="model.channels")
    optimiser: Literal["momentum", "adam"] = msgspec.field(name="training.optimiser", default="momentum")
    wire: str = msgspec.field(name="feedback.wire", default="")
    rows: Annotated[int, msgspec.Meta(ge=0, le=SAMPLES)] = msgspec.field(name="feedback.rows", default=0)

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """{name: shape} of weights and biases."""
        return network(self.name).shapes(self, EDGE[self.data])

    def prefixes(self) -> list[str]:
        """Of the names of the arrays that each tensor has: its weights, and what the optimiser keeps."""
        return [WEIGHTS, *(f"{name}." for name in OPTIMISERS[self.optimiser].NAMES)]


def problem_of(config, options, size: int) -> dict[str, Any]:
    """The options that a run and the checkpoint that it continues from must share, flat; with feedback these are more,
    for what it keeps belongs to a wire."""
    sections = {name: getattr(config, name) for name in ("data", "model", "training", "seeds")}
    flat = {
        f"{name}.{option.name}": getattr(section, option.name)
        for name, section in sections.items()
        for option in fields(section)
        if option.metadata["role"] == "problem"
    }
    return flat | feedback.described(config, options, size)


def save_checkpoint(ctx, step: int, trainer) -> None:
    """Write RUN/checkpoints/repeat-R-step-S.h5, for any number of ranks; rank 0 writes. Collective."""
    options, optimiser = problem_of(ctx.config, ctx.options, ctx.size), trainer.optimiser
    shapes = msgspec.convert(options, Shapes)
    arrays = feedback.gathered(trainer, shapes.rows)
    if ctx.rank:
        return
    for prefix, kept in zip(shapes.prefixes(), (optimiser.weights, *optimiser.states.values()), strict=True):
        arrays |= {f"{prefix}{name}": array for name, array in zip(shapes.tensors(), kept, strict=True)}
    file.write(ctx, KIND, step, options, arrays)


def load_checkpoint(ctx, trainer) -> int:
    """Take up the checkpoint of `output.restart`, verified again, for it may have changed; the step that it is of.
    Collective."""
    step, optimiser, arrays = -1, trainer.optimiser, None
    if ctx.rank == 0:
        checkpoint = verify(ctx.config, ctx.options, ctx.size)
        restart.log_comparison(ctx, ctx.config.output.restart, checkpoint)
        step = checkpoint.head.step
        own = optimiser.weights, *optimiser.states.values()
        for prefix, kept in zip(checkpoint.shapes.prefixes(), own, strict=True):
            for name, array in zip(checkpoint.shapes.tensors(), kept, strict=True):
                array[...] = checkpoint.arrays[f"{prefix}{name}"]
        arrays = checkpoint.arrays
    feedback.restore(trainer, problem_of(ctx.config, ctx.options, ctx.size).get("feedback.rows", 0), arrays)
    for kept in (optimiser.weights, *optimiser.states.values()):
        for array in kept:
            ctx.comm.Bcast(array)
    return ctx.comm.bcast(step)


def check_restart(config, options, size: int) -> None:
    """Raise UsageError unless this run can continue from the checkpoint of `output.restart`."""
    restart.compare_with_trace(config.output.restart, verify(config, options, size))


def verify(config, options, size: int) -> Checkpoint:
    """The checkpoint of `output.restart`, of the same problem and seed, at a step that this run has."""
    problem = problem_of(config, options, size)
    need = 4 * sum(prod(shape) for _, shape in _expected(msgspec.convert(problem, Shapes)).values())
    last = config.training.last
    return restart.verify(config.output.restart, KIND, problem, options.seed, last, "--until", need)


def combined(prints: Iterable[bytes]) -> str:
    """32 hex digits over the fingerprints of all weights and biases, in the order of the model."""
    return hashlib.blake2b(b"".join(prints), digest_size=16).hexdigest()


def fingerprints(weights: Sequence[np.ndarray]) -> list[bytes]:
    """Of each tensor."""
    return [fingerprint(array) for array in weights]


def _expected(shapes: Shapes) -> dict[str, tuple[str, tuple[int, ...]]]:
    tensors = shapes.tensors().items()
    kept = {f"{prefix}{name}": shape for prefix in shapes.prefixes() for name, shape in tensors}
    if shapes.rows:
        kept |= {f"{LOST}{name}": (shapes.rows, *shape) for name, shape in tensors}
        kept |= {f"{LOST_OF_TOTAL}{name}": shape for name, shape in tensors}
    return {name: ("float32", shape) for name, shape in kept.items()}


def _check(head: Head, shapes: Shapes, arrays: dict[str, np.ndarray], where: str) -> None:
    """Any finite numbers are a state."""


def _prints(shapes: Shapes, arrays: dict[str, np.ndarray]) -> dict[str, list[bytes]]:
    return {"weights": fingerprints([arrays[f"{WEIGHTS}{name}"] for name in shapes.tensors()])}


def _fingerprint(shapes: Shapes, arrays: dict[str, np.ndarray]) -> str:
    return combined(_prints(shapes, arrays)["weights"])


KIND = Kind("training", 1, Head, Shapes, _expected, _check, _prints, _fingerprint)
