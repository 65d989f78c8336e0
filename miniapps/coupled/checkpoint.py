"""The file of a checkpoint: all that the same bits later need, sealed when written, verified when read.

Verified are, in this order, the seal (every byte is as it was written), attributes and arrays (a schema), and the
fingerprint of the state (of the arrays as they were read). `restart` goes on from there.
"""

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np

from miniapps.coupled.closure import NETWORKS, parameters
from miniapps.coupled.config import ClosureKind
from miniapps.coupled.flow import view
from miniapps.coupled.physics import HALO
from miniapps.coupled.state import State, combined, problem_of
from miniapps.layout import fields
from miniapps.layout.blocks import Blocks, BlocksError
from miniapps.received import contents
from miniapps.received.records import conform
from miniapps.received.regular import MOST, Refused
from miniapps.received.sealed import read_sealed
from miniapps.received.text import printable
from miniapps.trace.schema import fingerprint_rows

FORMAT: Final = "fpna-checkpoint"
SCHEMA: Final = 2
FOLDER = "checkpoints"
FIELDS = ("zeta", "psi", "slope", "curvature")
PREFIX = "surrogate."
NAME = re.compile(r"repeat-([0-9]{1,18})-step-([0-9]{1,18})\.h5")

Count = Annotated[
    int, msgspec.Meta(ge=0, lt=2**31 - 1)
]  # a trace counts in int32, also the step that follows
Edge = Annotated[int, msgspec.Meta(ge=1, le=2**20)]


class Head(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The attributes of a checkpoint, but for the options of its run."""

    format: Literal["fpna-checkpoint"]
    schema: Literal[2]
    app: Literal["coupled"]
    seed: int
    repeat: Count
    step: Count
    time: float
    last_dt: float
    fingerprint: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]


class Shapes(msgspec.Struct):
    """The options that decide which arrays a checkpoint holds."""

    nx: Edge = msgspec.field(name="grid.nx")
    ny: Edge = msgspec.field(name="grid.ny")
    bx: Edge = msgspec.field(name="grid.bx")
    by: Edge = msgspec.field(name="grid.by")
    kind: ClosureKind = msgspec.field(name="closure.kind")
    channels: Edge = msgspec.field(name="closure.channels")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that agrees with itself.

    `options` {"section.name": value} are those of its run; `arrays` are FIELDS, float64 (ny, nx), and `surrogate.*`;
    `blocks` cuts the fields.
    """

    head: Head
    options: dict[str, Any]
    arrays: dict[str, np.ndarray]
    blocks: Blocks

    def weights(self) -> dict[str, np.ndarray]:
        """What `Surrogate.load` takes; empty where the run had no network."""
        return {k.removeprefix(PREFIX): array for k, array in self.arrays.items() if k.startswith(PREFIX)}


def save_checkpoint(ctx, blocks: Blocks, state: State, surrogate) -> None:
    """Write RUN/checkpoints/repeat-R-step-S.h5: global arrays, for any number of ranks. Collective."""
    padded = {"zeta": view(state.zeta, HALO), "psi": view(state.psi, HALO)}
    own = padded | {"slope": state.slope, "curvature": state.curvature}
    whole = {name: fields.gather(blocks, ctx.comm, own[name], ctx.tracer) for name in FIELDS}
    arrays = {name: array for name, array in whole.items() if array is not None}
    if ctx.rank:
        return
    if surrogate is not None:
        arrays |= {f"{PREFIX}{name}": value for name, value in surrogate.state().items()}
    head = Head(
        format=FORMAT,
        schema=SCHEMA,
        app="coupled",
        seed=ctx.seed,
        repeat=ctx.repeat,
        step=state.step,
        time=state.time,
        last_dt=state.last_dt,
        fingerprint=_fingerprint(block_prints(blocks, arrays), arrays),
    )
    options = {f"config.{key}": value for key, value in problem_of(ctx.config).items()}
    name = f"{FOLDER}/repeat-{ctx.repeat}-step-{state.step:06d}.h5"
    fields.save(ctx.directory(), name, msgspec.structs.asdict(head) | options, arrays)


def read_checkpoint(path: str | os.PathLike, most: int = MOST) -> Checkpoint:
    """The checkpoint `path`, which the user typed, of at most `most` bytes, if it agrees with itself.

    Raises Refused, or OSError and ValueError as `open` does.
    """
    where = printable(os.fspath(path))
    image, _ = read_sealed(path, most, links=True)
    with contents.opened(image, where) as root:
        head, options, shapes = _attributes(contents.attributes(root, where, heap=False), where)
        expected = _expected(shapes)
        present = set(contents.names(root, where))
        if present != set(expected):
            raise Refused(
                f"{where}: it holds {_listed(present)}, and a checkpoint of this problem holds {_listed(expected)}; "
                "it is none of ours: leave it out"
            )
        arrays = {
            name: contents.array(root, name, where, len(image), dtype, len(shape))
            for name, (dtype, shape) in expected.items()
        }
    for name, (_, shape) in expected.items():
        if arrays[name].shape != shape:
            raise Refused(
                f"{where}: {name} is of shape {arrays[name].shape}, and its options make it {shape}; it is none of "
                "ours: leave it out"
            )
    _check_numbers(arrays, where)
    try:
        blocks = Blocks(shapes.ny, shapes.nx, shapes.by, shapes.bx)
    except BlocksError as error:
        raise Refused(f"{where}: {error}; it is none of ours: leave it out") from None
    if _fingerprint(block_prints(blocks, arrays), arrays) != head.fingerprint:
        raise Refused(
            f"{where}: its arrays do not have the fingerprint of the state that was written ({head.fingerprint}); "
            "restart from another checkpoint of that run"
        )
    named = NAME.fullmatch(Path(path).name)
    if named and (int(named[1]), int(named[2])) != (head.repeat, head.step):
        raise Refused(
            f"{where}: it is of repeat {head.repeat}, step {head.step}, and its name says something else; give it the "
            "name that it had"
        )
    return Checkpoint(head, options, arrays, blocks)


def _attributes(attributes: dict[str, Any], where: str) -> tuple[Head, dict[str, Any], Shapes]:
    """(head, options of the run, what of them decides the shapes). Raises Refused."""
    if attributes.get("format") != FORMAT or attributes.get("app") != "coupled":
        raise Refused(f"{where}: not a checkpoint of coupled; give one of RUN/{FOLDER}/*.h5")
    if isinstance(attributes.get("schema"), int) and attributes["schema"] > SCHEMA:
        raise Refused(
            f"{where}: written by a newer version (schema {attributes['schema']}, known up to {SCHEMA}); update this "
            "installation"
        )
    stored = {k.removeprefix("config."): value for k, value in attributes.items() if k.startswith("config.")}
    head = conform({k: value for k, value in attributes.items() if not k.startswith("config.")}, Head, where)
    if not 0.0 <= head.last_dt <= head.time < math.inf or (head.step == 0 and head.time > 0.0):
        raise Refused(
            f"{where}: step {head.step} at time {head.time!r} after a step of {head.last_dt!r} cannot be; it is none "
            "of ours: leave it out"
        )
    options = {
        key: conform(value, int | float | str, f"{where}: {cut(key, 60)}") for key, value in stored.items()
    }
    return head, options, conform(options, Shapes, where)


def _expected(shapes: Shapes) -> dict[str, tuple[str, tuple[int, ...]]]:
    """{name: (dtype, shape)} of the arrays."""
    expected: dict[str, tuple[str, tuple[int, ...]]] = {
        name: ("float64", (shapes.ny, shapes.nx)) for name in FIELDS
    }
    if shapes.kind in NETWORKS:
        network = ("float32", (parameters(shapes.channels),))
        expected |= {f"{PREFIX}{name}": network for name in ("theta", "first_moment", "second_moment")}
        expected[f"{PREFIX}steps"] = ("int64", (1,))
    return expected


def _check_numbers(arrays: dict[str, np.ndarray], where: str) -> None:
    """Raise Refused where a run could not go on: it stops itself when its state is no longer finite."""
    for name, array in arrays.items():
        wrong, what = ~np.isfinite(array), "is not finite"
        if name == f"{PREFIX}second_moment":
            wrong, what = wrong | (array < 0), "is no mean of squares"
        elif name == f"{PREFIX}steps":
            wrong, what = (array < 0) | (array >= 2**31), "is no number of steps"
        if wrong.any():
            at = tuple(int(i) for i in np.unravel_index(np.argmax(wrong), array.shape))
            raise Refused(
                f"{where}: {name}{list(at)} = {array[at]} {what}, so that no run can go on from it; restart from an "
                "earlier checkpoint"
            )


def block_prints(blocks: Blocks, arrays: dict[str, np.ndarray]) -> list[list[bytes]]:
    """The fingerprints of the blocks of vorticity and of streamfunction, ascending."""
    return [fingerprint_rows(fields.by_block(blocks, arrays[name])) for name in ("zeta", "psi")]


def _fingerprint(prints: list[list[bytes]], arrays: dict[str, np.ndarray]) -> str:
    return combined((zeta + psi for zeta, psi in zip(*prints, strict=True)), arrays.get(f"{PREFIX}theta"))


def _listed(names) -> str:
    shown = sorted(names)[:12]
    return cut(", ".join(shown) or "nothing", 200) + (", ..." if len(names) > len(shown) else "")


def cut(text: str, most: int) -> str:
    """The beginning of `text` of unknown origin, fit for a message."""
    return printable(text if len(text) <= most else f"{text[:most]}...")
