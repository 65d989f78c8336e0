"""The file of a checkpoint: all data from which a run continues with the same bits, sealed when written.

`read` verifies, in this order, the seal (every byte is as it was written), attributes and arrays against a schema, the
limits of a state, and the fingerprint of the arrays. `restart` compares the checkpoint with the run and the trace.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np

from miniapps.layout import fields
from miniapps.trace.chain import hash_of_checkpoint
from miniapps.trace.heads import FOLDER, checkpoint_file
from miniapps.untrusted import contents
from miniapps.untrusted.records import conform
from miniapps.untrusted.regular import MOST, Refused
from miniapps.untrusted.sealed import read_sealed
from miniapps.untrusted.text import printable

FORMAT: Final = "fpna-checkpoint"
NAME = re.compile(r"repeat-([0-9]{1,18})-step-([0-9]{1,18})\.h5")

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31 - 1)]  # a trace counts in int32, the next step included


class Head(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The attributes common to all checkpoints, without the options of the run."""

    format: Literal["fpna-checkpoint"]
    schema: int
    app: str
    seed: int
    repeat: Count
    step: Count
    fingerprint: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    chain: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")] = ""  # the head of its run after `step`


@dataclass(frozen=True)
class Kind:
    """The form of an application's checkpoints.

    `head`: a Head, maybe with more attributes. `shapes(options, where)` returns the options that decide the shapes of
    the arrays (`as_struct`), and raises Refused for impossible options. `expected(shapes)`: {name: (dtype, shape)} of
    the arrays. `check(head, shapes, arrays, where)` raises Refused for an impossible state; `read` itself refuses
    numbers that are not finite. `prints(shapes, arrays, hashed)`: {name in the trace: fingerprints of all blocks,
    ascending, of the kind `hashed`}. `fingerprint(shapes, arrays)`: 32 hex digits of the state.
    """

    app: str
    schema: int
    head: type[Head]
    shapes: Callable[[dict[str, Any], str], Any]
    expected: Callable[[Any], dict[str, tuple[str, tuple[int, ...]]]]
    check: Callable[[Any, Any, dict[str, np.ndarray], str], None]
    prints: Callable[[Any, dict[str, np.ndarray], str], dict[str, list[bytes]]]
    fingerprint: Callable[[Any, dict[str, np.ndarray]], str]
    recorded_after: int = 1  # steps after which the trace records the state of a checkpoint


def as_struct(schema: type[msgspec.Struct]) -> Callable[[dict[str, Any], str], Any]:
    """The `shapes` function of a Kind from the msgspec.Struct of its options."""
    return lambda options, where: conform(options, schema, where)


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint; `options`: {"section.name": value} of its run."""

    kind: Kind
    head: Any
    options: dict[str, Any]
    shapes: Any
    arrays: dict[str, np.ndarray]

    def prints(self, hashed: str = "xxh3") -> dict[str, list[bytes]]:
        """{name in the trace: fingerprints of all blocks, ascending, of the kind `hashed`}."""
        return self.kind.prints(self.shapes, self.arrays, hashed)


def write(ctx, kind: Kind, step: int, options: dict[str, Any], arrays: dict[str, np.ndarray], **more) -> None:
    """Writes RUN/checkpoints/repeat-R-step-S.h5 with global arrays, for any number of ranks, and extends the chain.
    Collective; rank 0 writes its own arguments.

    `options`: of the problem, flat; `more`: further attributes of this kind's head. Raises RunError.
    """
    if ctx.rank:
        ctx.extend_chain(bytes)
        return
    packed = ctx.config.output.checkpoint_bits is not None
    shapes: Any = kind.shapes(options, "options of the run")
    head = kind.head(
        format=FORMAT,
        schema=kind.schema,
        app=kind.app,
        seed=ctx.seed,
        repeat=ctx.repeat,
        step=step,
        fingerprint=kind.fingerprint(shapes, arrays),
        **more,
    )
    attributes = msgspec.structs.asdict(head) | {f"config.{key}": value for key, value in options.items()}
    attributes["chain"] = ctx.extend_chain(lambda: hash_of_checkpoint(attributes, arrays))
    fields.save(ctx.directory(), checkpoint_file(ctx.repeat, step), attributes, arrays, packed)


def read(path: str | os.PathLike, kind: Kind, most: int = MOST) -> Checkpoint:
    """Reads and verifies the checkpoint `path` of at most `most` bytes; follows links, since the user typed the path.

    Raises Refused for an invalid file, OSError and ValueError as `open` does.
    """
    where = printable(os.fspath(path))
    image, _ = read_sealed(path, most, links=True)
    with contents.opened(image, where) as root:
        head, options, shapes = _attributes(contents.attributes(root, where, heap=False), kind, where)
        expected = kind.expected(shapes)
        present = set(contents.names(root, where))
        if present != set(expected):
            raise Refused(
                f"{where}: it holds {_listed(present)}, and a checkpoint of this problem holds {_listed(expected)}; "
                "this program did not write it: leave it out"
            )
        room = contents.Room(image)
        arrays = {
            name: contents.array(root, name, where, room, dtype, len(shape))
            for name, (dtype, shape) in expected.items()
        }
    for name, (_, shape) in expected.items():
        if arrays[name].shape != shape:
            raise Refused(
                f"{where}: {name} has shape {arrays[name].shape}, but {shape} by its options; this program did not "
                "write it: leave it out"
            )
        # A run stops when its state is not finite.
        refuse_any(~np.isfinite(arrays[name]), name, arrays[name], "is not finite", where)
    kind.check(head, shapes, arrays, where)
    if kind.fingerprint(shapes, arrays) != head.fingerprint:
        raise Refused(
            f"{where}: its arrays do not have the fingerprint of the state that was written ({head.fingerprint}); "
            "restart from another checkpoint of that run"
        )
    named = NAME.fullmatch(Path(path).name)
    if named and (int(named[1]), int(named[2])) != (head.repeat, head.step):
        raise Refused(
            f"{where}: it holds repeat {head.repeat}, step {head.step}, which its name contradicts; restore its "
            "original name"
        )
    return Checkpoint(kind, head, options, shapes, arrays)


def refuse_any(wrong: np.ndarray, name: str, array: np.ndarray, what: str, where: str) -> None:
    """Raise Refused if an element of `array` is `wrong` (bool, same shape); the message names the first."""
    if wrong.any():
        at = tuple(int(i) for i in np.unravel_index(np.argmax(wrong), array.shape))
        raise Refused(
            f"{where}: {name}{list(at)} = {array[at]} {what}, so no run can continue from it; restart from an earlier "
            "checkpoint"
        )


def cut(text: str, most: int) -> str:
    """The beginning of `text` of unknown origin, fit for a message."""
    return printable(text if len(text) <= most else f"{text[:most]}...")


def _attributes(attributes: dict[str, Any], kind: Kind, where: str) -> tuple[Any, dict[str, Any], Any]:
    """Returns (head, options of the run, the options that decide the shapes). Raises Refused."""
    if attributes.get("format") != FORMAT or attributes.get("app") != kind.app:
        raise Refused(f"{where}: not a checkpoint of {kind.app}; give one of RUN/{FOLDER}/*.h5")
    schema = attributes.get("schema")
    if isinstance(schema, int) and schema > kind.schema:
        raise Refused(
            f"{where}: written by a newer version (schema {schema}, known up to {kind.schema}); update this "
            "installation"
        )
    stored = {k.removeprefix("config."): value for k, value in attributes.items() if k.startswith("config.")}
    head = conform({k: v for k, v in attributes.items() if not k.startswith("config.")}, kind.head, where)
    if head.schema != kind.schema:
        raise Refused(
            f"{where}: it has schema {head.schema}, and only {kind.schema} is readable; write it again"
        )
    options = {
        key: conform(value, bool | int | float | str, f"{where}: {cut(key, 60)}")
        for key, value in stored.items()
    }
    return head, options, kind.shapes(options, where)


def _listed(names) -> str:
    shown = sorted(names)[:12]
    return cut(", ".join(shown) or "nothing", 200) + (", ..." if len(names) > len(shown) else "")
