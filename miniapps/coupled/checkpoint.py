"""Checkpoints of the flow: four fields, the network if there is one, and the time."""

import math
from typing import Annotated

import msgspec
import numpy as np

from miniapps.checkpoints import file
from miniapps.checkpoints.file import Checkpoint, Kind, as_struct, refuse_any
from miniapps.coupled.closure import NETWORKS
from miniapps.coupled.config import ClosureKind
from miniapps.coupled.flow import view
from miniapps.coupled.network import parameters
from miniapps.coupled.physics import HALO
from miniapps.coupled.state import State, combined, problem_of
from miniapps.layout import fields
from miniapps.layout.blocks import Blocks, BlocksError
from miniapps.trace.schema import fingerprint_rows
from miniapps.untrusted.regular import Refused

FIELDS = ("zeta", "psi", "slope", "curvature")
PREFIX = "surrogate."

Edge = Annotated[int, msgspec.Meta(ge=1, le=2**20)]


class Head(file.Head, forbid_unknown_fields=True, kw_only=True):
    """The attributes of a checkpoint, without the options of its run."""

    time: float
    last_dt: float


class Shapes(msgspec.Struct):
    """The options that decide the arrays in a checkpoint."""

    nx: Edge = msgspec.field(name="grid.nx")
    ny: Edge = msgspec.field(name="grid.ny")
    bx: Edge = msgspec.field(name="grid.bx")
    by: Edge = msgspec.field(name="grid.by")
    kind: ClosureKind = msgspec.field(name="closure.kind")
    channels: Edge = msgspec.field(name="closure.channels")


def save_checkpoint(ctx, blocks: Blocks, state: State, surrogate) -> None:
    """Writes RUN/checkpoints/repeat-R-step-S.h5 with global arrays, for any number of ranks. Collective."""
    padded = {"zeta": view(state.zeta, HALO), "psi": view(state.psi, HALO)}
    own = padded | {"slope": state.slope, "curvature": state.curvature}
    whole = {name: fields.gather(blocks, ctx.comm, own[name], ctx.tracer) for name in FIELDS}
    arrays = {name: array for name, array in whole.items() if array is not None}
    if surrogate is not None:
        arrays |= {f"{PREFIX}{name}": value for name, value in surrogate.state().items()}
    file.write(ctx, KIND, state.step, problem_of(ctx.config), arrays, time=state.time, last_dt=state.last_dt)


def weights(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """The argument of `Surrogate.load` in a checkpoint; empty if the run had no network."""
    arrays = checkpoint.arrays
    return {k.removeprefix(PREFIX): array for k, array in arrays.items() if k.startswith(PREFIX)}


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


def _check(head: Head, shapes: Shapes, arrays: dict[str, np.ndarray], where: str) -> None:
    """Raise Refused for an impossible state."""
    if not 0.0 <= head.last_dt <= head.time < math.inf or (head.step == 0 and head.time > 0.0):
        raise Refused(
            f"{where}: step {head.step} at time {head.time!r} after a step of {head.last_dt!r} is impossible; this "
            "program did not write it: leave it out"
        )
    moment, steps = f"{PREFIX}second_moment", f"{PREFIX}steps"
    if moment in arrays:
        refuse_any(arrays[moment] < 0, moment, arrays[moment], "is no mean of squares", where)
        wrong = (arrays[steps] < 0) | (arrays[steps] >= 2**31)
        refuse_any(wrong, steps, arrays[steps], "is no number of steps", where)
    try:
        _blocks(shapes)
    except BlocksError as error:
        raise Refused(f"{where}: {error}; this program did not write it: leave it out") from None


def _blocks(shapes: Shapes) -> Blocks:
    return Blocks(shapes.ny, shapes.nx, shapes.by, shapes.bx)


def _prints(shapes: Shapes, arrays: dict[str, np.ndarray], hashed: str = "xxh3") -> dict[str, list[bytes]]:
    """{name in the trace: fingerprints of the blocks, ascending}, of vorticity and of streamfunction."""
    names = (("vorticity", "zeta"), ("streamfunction", "psi"))
    return {
        name: fingerprint_rows(fields.by_block(_blocks(shapes), arrays[held]), hashed) for name, held in names
    }


def _fingerprint(shapes: Shapes, arrays: dict[str, np.ndarray]) -> str:
    prints = _prints(shapes, arrays).values()
    return combined((zeta + psi for zeta, psi in zip(*prints, strict=True)), arrays.get(f"{PREFIX}theta"))


KIND = Kind("coupled", 2, Head, as_struct(Shapes), _expected, _check, _prints, _fingerprint)
