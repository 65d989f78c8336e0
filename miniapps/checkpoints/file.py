"""The file of a checkpoint: all that the same bits later need, sealed when written, verified when read.

Verified are, in this order, the seal (every byte is as it was written), attributes and arrays (a schema), what a state
can be, and the fingerprint of the state (of the arrays as they were read). `restart` goes on from there.
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

Count = Annotated[
    int, msgspec.Meta(ge=0, lt=2**31 - 1)
]  # a trace counts in int32, also the step that follows


class Head(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The attributes of any checkpoint, but for the options of its run."""

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
    """What the checkpoints of an application are.

    `head`: a Head, maybe with more attributes; `shapes(options, where)`: what of the options of a run decides what they
    hold (`as_struct`); raises Refused for options that no run could have.
    `expected(shapes)`: {name: (dtype, shape)} of the arrays; `check(head, shapes, arrays, where)` raises Refused for
    a state that no run could have left, beside numbers that are not finite; `prints(shapes, arrays, hashed)`: {name in
    the trace: fingerprints of all blocks, ascending, computed so}; `fingerprint(shapes, arrays)`: 32 hex digits of the
    state.
    """

    app: str
    schema: int
    head: type[Head]
    shapes: Callable[[dict[str, Any], str], Any]
    expected: Callable[[Any], dict[str, tuple[str, tuple[int, ...]]]]
    check: Callable[[Any, Any, dict[str, np.ndarray], str], None]
    prints: Callable[[Any, dict[str, np.ndarray], str], dict[str, list[bytes]]]
    fingerprint: Callable[[Any, dict[str, np.ndarray]], str]
    recorded_after: int = 1  # steps after that of a checkpoint in which the trace has its state


def as_struct(schema: type[msgspec.Struct]) -> Callable[[dict[str, Any], str], Any]:
    """The `shapes` of a Kind that a msgspec.Struct describes."""
    return lambda options, where: conform(options, schema, where)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that agrees with itself: `options` {"section.name": value} are those of its run."""

    kind: Kind
    head: Any
    options: dict[str, Any]
    shapes: Any
    arrays: dict[str, np.ndarray]

    def prints(self, hashed: str = "xxh3") -> dict[str, list[bytes]]:
        """{name in the trace: fingerprints of all blocks, ascending, computed as `hashed` says}."""
        return self.kind.prints(self.shapes, self.arrays, hashed)


def write(ctx, kind: Kind, step: int, options: dict[str, Any], arrays: dict[str, np.ndarray], **more) -> None:
    """Write RUN/checkpoints/repeat-R-step-S.h5 with global arrays, for any number of ranks, and extend the chain of the
    run. Collective; what is given counts on rank 0, which writes.

    `options`: those of the problem, flat; `more`: what the head of this kind has beside that of any. Raises RunError.
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
    """The checkpoint `path`, which the user typed, of at most `most` bytes, if it agrees with itself.

    Raises Refused, or OSError and ValueError as `open` does.
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
                "it is none of ours: leave it out"
            )
        room = contents.Room(image)
        arrays = {
            name: contents.array(root, name, where, room, dtype, len(shape))
            for name, (dtype, shape) in expected.items()
        }
    for name, (_, shape) in expected.items():
        if arrays[name].shape != shape:
            raise Refused(
                f"{where}: {name} is of shape {arrays[name].shape}, and its options make it {shape}; it is none of "
                "ours: leave it out"
            )
        # A run stops itself when its state is no longer finite.
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
            f"{where}: it is of repeat {head.repeat}, step {head.step}, and its name says something else; give it the "
            "name that it had"
        )
    return Checkpoint(kind, head, options, shapes, arrays)


def refuse_any(wrong: np.ndarray, name: str, array: np.ndarray, what: str, where: str) -> None:
    """Raise Refused, naming the first element of `array` that is `wrong` (bool, of its shape), if one is."""
    if wrong.any():
        at = tuple(int(i) for i in np.unravel_index(np.argmax(wrong), array.shape))
        raise Refused(
            f"{where}: {name}{list(at)} = {array[at]} {what}, so that no run can go on from it; restart from an "
            "earlier checkpoint"
        )


def cut(text: str, most: int) -> str:
    """The beginning of `text` of unknown origin, fit for a message."""
    return printable(text if len(text) <= most else f"{text[:most]}...")


def _attributes(attributes: dict[str, Any], kind: Kind, where: str) -> tuple[Any, dict[str, Any], Any]:
    """(head, options of the run, what of them decides the shapes). Raises Refused."""
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
        raise Refused(f"{where}: of schema {head.schema}, and {kind.schema} is read; write it again")
    options = {
        key: conform(value, int | float | str, f"{where}: {cut(key, 60)}") for key, value in stored.items()
    }
    return head, options, kind.shapes(options, where)


def _listed(names) -> str:
    shown = sorted(names)[:12]
    return cut(", ".join(shown) or "nothing", 200) + (", ..." if len(names) > len(shown) else "")
