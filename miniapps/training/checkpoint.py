"""What a checkpoint of a training holds: weights, what optimiser and feedback keep, and at which step."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import fields
from math import prod
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from miniapps.checkpoints import file, restart
from miniapps.checkpoints.file import Checkpoint, Head, Kind
from miniapps.trace import fingerprint
from miniapps.training import dlrm_problem, feedback
from miniapps.training.config import SAMPLES
from miniapps.training.data import EDGE
from miniapps.training.feedback import LOST, LOST_OF_TOTAL
from miniapps.training.models import network
from miniapps.training.optimiser import OPTIMISERS

Width = Annotated[int, msgspec.Meta(ge=1, le=2**14)]
WEIGHTS, BUFFER = "weights.", "buffer."
TABLE = "table."  # fingerprints of a table of embeddings, by block of rows


class Shapes(msgspec.Struct):
    """The options that decide which arrays a checkpoint holds."""

    data: Literal["fashion", "mnist5000", "digits", "blobs", "cora", "text", "ml-100k", "zipf"] = (
        msgspec.field(name="data.name")
    )
    name: Literal["mlp", "cnn", "graphsage", "dlrm", "gpt", "bert", "unet", "moe"] = msgspec.field(
        name="model.name"
    )
    hidden: Width = msgspec.field(name="model.hidden")
    channels: Width = msgspec.field(name="model.channels")
    optimiser: Literal["momentum", "adam"] = msgspec.field(name="training.optimiser", default="momentum")
    wire: str = msgspec.field(name="feedback.wire", default="")
    rows: Annotated[int, msgspec.Meta(ge=0, le=SAMPLES)] = msgspec.field(name="feedback.rows", default=0)
    axes: str = msgspec.field(name="mesh.axes", default="")  # of a model over a mesh
    layers: Annotated[int, msgspec.Meta(ge=1, le=256)] = msgspec.field(name="model.layers", default=4)
    heads: Annotated[int, msgspec.Meta(ge=1, le=256)] = msgspec.field(name="model.heads", default=4)
    tokens: Annotated[int, msgspec.Meta(ge=2, le=2**14)] = msgspec.field(name="model.tokens", default=128)
    experts: Annotated[int, msgspec.Meta(ge=2, le=1024)] = msgspec.field(name="model.experts", default=4)
    batch: Annotated[int, msgspec.Meta(ge=1, le=SAMPLES)] = msgspec.field(name="training.batch", default=256)
    micro: Annotated[int, msgspec.Meta(ge=1, le=SAMPLES)] = msgspec.field(name="training.micro", default=32)

    table_rows: Annotated[int, msgspec.Meta(ge=1, le=2**30)] = msgspec.field(
        name="embeddings.rows", default=1
    )
    tables: Annotated[int, msgspec.Meta(ge=1, le=1024)] = msgspec.field(name="embeddings.tables", default=1)
    columns: Annotated[int, msgspec.Meta(ge=1, le=4096)] = msgspec.field(name="embeddings.columns", default=1)
    features: Annotated[int, msgspec.Meta(ge=1, le=1024)] = msgspec.field(
        name="embeddings.features", default=1
    )
    blocks: Annotated[int, msgspec.Meta(ge=1, le=2**16)] = msgspec.field(name="embeddings.blocks", default=1)

    @property
    def buffered(self) -> bool:
        """Whether there is more that changes from step to step than weights and what an optimiser keeps."""
        return bool(self.axes) or self.name == "dlrm"

    def embeddings(self) -> SimpleNamespace:
        """What decides on the tables of dlrm, by the names of `config.Embeddings`."""
        return SimpleNamespace(
            rows=self.table_rows, tables=self.tables, columns=self.columns, features=self.features,
            blocks=self.blocks, pooling=1,
        )  # fmt: skip

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """{name: shape} of weights and biases."""
        if self.axes:
            return {name: shape for name, (_, shape) in self._of_mesh("named_parameters").items()}
        if self.name == "dlrm":
            return dlrm_problem.shapes(self.data, self.hidden, self.embeddings())
        return network(self.name).shapes(self, EDGE[self.data])

    def buffers(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """{name: (dtype, shape)} of what else changes from step to step: running means of a normalisation, tables."""
        if self.name == "dlrm":
            tables = dlrm_problem.tables(self.data, self.embeddings())
            return {table.name: ("float32", (table.rows, table.columns)) for table in tables}
        return self._of_mesh("named_buffers") if self.axes else {}

    def _of_mesh(self, kind: str) -> dict[str, tuple[str, tuple[int, ...]]]:
        import torch

        from miniapps.partition.models import model
        from miniapps.training.mesh_problem import deck

        config = SimpleNamespace(
            data=SimpleNamespace(name=self.data), model=self, training=self, mesh=SimpleNamespace(blocks="")
        )
        with torch.device("meta"):
            module = model(self.name).module(deck(config))
        return {
            key: (str(x.dtype).removeprefix("torch."), tuple(x.shape)) for key, x in getattr(module, kind)()
        }

    def prefixes(self) -> list[str]:
        """Of the names of the arrays that each tensor has: its weights, and what the optimiser keeps."""
        return [WEIGHTS, *(f"{name}." for name in OPTIMISERS[self.optimiser].NAMES)]


def problem_of(config, options, size: int) -> dict[str, Any]:
    """The options that a run and the checkpoint that it continues from must share, flat; with feedback these are more,
    for what it keeps belongs to a wire."""
    names: tuple[str, ...] = ("data", "model", "training", "seeds")
    names += ("mesh",) if config.meshed else ("embeddings",) if config.model.name == "dlrm" else ()
    sections = {name: getattr(config, name) for name in names}
    flat = {
        f"{name}.{option.name}": getattr(section, option.name)
        for name, section in sections.items()
        for option in fields(section)
        if option.metadata["role"] == "problem"
    }
    return flat | ({} if config.meshed else feedback.described(config, options, size))


def save_checkpoint(ctx, step: int, trainer) -> None:
    """Write RUN/checkpoints/repeat-R-step-S.h5, for any number of ranks; rank 0 writes. Collective."""
    options = problem_of(ctx.config, ctx.options, ctx.size)
    shapes = msgspec.convert(options, Shapes)
    arrays = gathered(trainer, shapes)
    file.write(ctx, KIND, step, options, arrays)


def gathered(trainer, shapes: Shapes) -> dict[str, np.ndarray]:
    """What a checkpoint holds, by name; on rank 0. Collective."""
    arrays = {} if shapes.axes else feedback.gathered(trainer, shapes.rows)
    for prefix, kept in zip(shapes.prefixes(), trainer.state(), strict=True):
        arrays |= {f"{prefix}{name}": array for name, array in zip(shapes.tensors(), kept, strict=True)}
    if shapes.buffered:
        arrays |= {f"{BUFFER}{name}": array for name, array in trainer.buffers().items()}
    return arrays


def load_checkpoint(ctx, trainer) -> int:
    """Take up the checkpoint of `output.restart`, verified again, for it may have changed; the step that it is of.
    Collective."""
    options = problem_of(ctx.config, ctx.options, ctx.size)
    shapes = msgspec.convert(options, Shapes)
    step, before, arrays = -1, "", None
    if ctx.rank == 0:
        checkpoint = verify(ctx.config, ctx.options, ctx.size)
        restart.log_comparison(ctx, ctx.config.output.restart, checkpoint)
        step, before, arrays = checkpoint.head.step, checkpoint.head.chain, checkpoint.arrays
    if not shapes.axes:
        feedback.restore(trainer, shapes.rows, arrays)
    held = {name: _shared(ctx.comm, arrays, name, *expected) for name, expected in _state(shapes).items()}
    tensors = shapes.tensors()
    trainer.take([[held[f"{prefix}{name}"] for name in tensors] for prefix in shapes.prefixes()])
    if shapes.buffered:
        trainer.take_buffers({name: held[f"{BUFFER}{name}"] for name in shapes.buffers()})
    step, before = ctx.comm.bcast((step, before))
    ctx.continue_chain(step, before)
    return step


def _shared(
    comm, arrays: dict[str, np.ndarray] | None, name: str, dtype: str, shape: tuple[int, ...]
) -> np.ndarray:
    """Rank 0's array of that name on every rank."""
    array = np.empty(shape, dtype) if arrays is None else np.ascontiguousarray(arrays[name])
    comm.Bcast(array)
    return array


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


def fingerprints(weights: Sequence[np.ndarray], hashed: str = "xxh3") -> list[bytes]:
    """Of each tensor."""
    return [fingerprint(array, hashed) for array in weights]


def _state(shapes: Shapes) -> dict[str, tuple[str, tuple[int, ...]]]:
    """(dtype, shape) of weights, what the optimiser keeps, and buffers."""
    tensors = shapes.tensors().items()
    kept = {f"{prefix}{name}": ("float32", shape) for prefix in shapes.prefixes() for name, shape in tensors}
    return kept | {f"{BUFFER}{name}": of for name, of in shapes.buffers().items()}


def _expected(shapes: Shapes) -> dict[str, tuple[str, tuple[int, ...]]]:
    kept = _state(shapes)
    if shapes.rows:
        tensors = shapes.tensors().items()
        kept |= {f"{LOST}{name}": ("float32", (shapes.rows, *shape)) for name, shape in tensors}
        kept |= {f"{LOST_OF_TOTAL}{name}": ("float32", shape) for name, shape in tensors}
    return kept


def _check(head: Head, shapes: Shapes, arrays: dict[str, np.ndarray], where: str) -> None:
    """Any finite numbers are a state."""


def _prints(shapes: Shapes, arrays: dict[str, np.ndarray], hashed: str = "xxh3") -> dict[str, list[bytes]]:
    prints = {"weights": fingerprints([arrays[f"{WEIGHTS}{name}"] for name in shapes.tensors()], hashed)}
    if shapes.name == "dlrm":
        for table in dlrm_problem.tables(shapes.data, shapes.embeddings()):
            parts = np.split(arrays[f"{BUFFER}{table.name}"], table.starts[1:-1])
            prints[f"{TABLE}{table.name}"] = fingerprints(parts, hashed)
    return prints


def _fingerprint(shapes: Shapes, arrays: dict[str, np.ndarray]) -> str:
    return combined(digest for of_name in _prints(shapes, arrays).values() for digest in of_name)


KIND = Kind("training", 1, Head, Shapes, _expected, _check, _prints, _fingerprint)
