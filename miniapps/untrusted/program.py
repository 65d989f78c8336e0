"""The step of a plan as data: what each rank of a mesh computes and sends, without running it (JSON).

`python -m miniapps.partition explain --save FILE` writes it, and `python -m analysis price FILE` prices it.
Ranks that do the same form a class, whose work is written once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from kernels.guarantees import Level
from miniapps.untrusted import records
from miniapps.untrusted.prediction import RANKS_MOST

Count = Annotated[int, Meta(ge=0, le=2**62)]
Name = Annotated[str, Meta(min_length=1, max_length=500)]
Index = Annotated[int, Meta(ge=0, lt=2**31)]


class Work(Struct, frozen=True):
    """A call of the kernel `key` of size `dims`, its floating-point operations, and bytes of operands and results."""

    key: Name
    dims: Annotated[tuple[Annotated[int, Meta(ge=1, le=2**62)], ...], Meta(max_length=16)]
    flops: Count
    nbytes: Count

    def __str__(self) -> str:
        return f"{self.key}@{'x'.join(map(str, self.dims))}"


class Segment(Struct, frozen=True):
    """The work between two waits: (number of a work, how often), and the counts of all between the calls."""

    calls: tuple[tuple[Index, Count], ...]
    rest: tuple[Count, Count, Count, Count]


class Wait(Struct, frozen=True):
    """A reduction or an exchange among the ranks that differ only `along` these axes of the mesh, or a message between
    stages of a pipeline. Ranks that take part call it by one `name`.

    Of a reduction or exchange that begins early, `start` and `finish` are two waits of one name: the first does not
    wait, and messages may pass until the second. Others are `whole`.

    A reduction has the `label` of its order, `elements` and `itemsize` of the vector, and the `contributions` of a
    rank; if it `scatters`, each rank gets only its part; over a lossy wire `nbytes`: what the vector is encoded to, on
    its way to the owners of its parts and back, mean of both. An exchange has the `nbytes` that a rank sends or
    receives, whichever is more, and the steps along each axis of the mesh to each rank with which it exchanges
    (`offsets`). A `send`, which does not wait, has its bytes and receiver; the offset of a `receive` leads to the
    sender."""

    name: Name
    kind: Literal["reduction", "exchange", "send", "receive"]
    along: tuple[Name, ...]
    label: str = ""
    elements: Count = 0
    itemsize: Count = 0
    contributions: Count = 1
    scatters: bool = False
    nbytes: Count = 0
    offsets: tuple[tuple[int, ...], ...] = ()
    part: Literal["whole", "start", "finish"] = "whole"

    @property
    def posts(self) -> bool:
        """Whether a rank posts its messages here."""
        return self.kind != "receive" and self.part != "finish"

    @property
    def ends(self) -> bool:
        """Whether a rank waits here."""
        return self.kind != "send" and self.part != "start"


class Ranks(Struct, frozen=True):
    """Ranks with equal work: `segments` is one longer than `waits`. `memory`: bytes of weights, of the optimiser's
    state, and the most that a step holds beside them."""

    ranks: tuple[Index, ...]
    segments: tuple[Segment, ...]
    waits: tuple[Wait, ...]
    memory: tuple[Count, Count, Count]


class Program(Struct, frozen=True):
    """A step of a plan on a mesh of ranks, the last axis fastest. `app`, `problem` and `method` are those of the runs
    that do it, empty if no application was asked; `model_flops`: operations of the model on one device; `environment`:
    machine and software of the run that saved it, as in traces, empty if no run did."""

    title: Name
    mesh: dict[Name, Annotated[int, Meta(ge=1, le=RANKS_MOST)]]
    guarantee: Level
    threads: Annotated[int, Meta(ge=1, le=4096)]
    model_flops: Count
    works: tuple[Work, ...]
    classes: Annotated[tuple[Ranks, ...], Meta(min_length=1)]
    app: str = ""
    problem: str = ""
    method: str = ""
    environment: dict[str, Any] = {}
    format: Literal["fpna-program"] = "fpna-program"
    schema: Literal[1] = 1

    @property
    def size(self) -> int:
        """Number of ranks."""
        return prod(self.mesh.values())

    def __post_init__(self) -> None:
        if sorted(rank for each in self.classes for rank in each.ranks) != list(range(self.size)):
            raise ValueError(f"the classes do not have each of {self.size} ranks once")
        for each in self.classes:
            if len(each.segments) != len(each.waits) + 1:
                raise ValueError(f"{len(each.segments)} segments around {len(each.waits)} waits")
            if len({(wait.name, wait.part == "finish") for wait in each.waits}) < len(each.waits):
                raise ValueError("a class of ranks has two waits of one name")
            begun: set[str] = set()
            for wait in each.waits:
                if wait.part != "whole" and wait.kind in ("send", "receive"):
                    raise ValueError(f"{wait.name}: a message between stages has no {wait.part}")
                if wait.part == "finish" and wait.name not in begun:
                    raise ValueError(f"{wait.name} ends and has not begun")
                (begun.add if wait.part == "start" else begun.discard)(wait.name)
            if begun:
                raise ValueError(f"{min(begun)} begins and does not end")
            if any(number >= len(self.works) for s in each.segments for number, _ in s.calls):
                raise ValueError("a call of a work that is not listed")
            if any(axis not in self.mesh for wait in each.waits for axis in wait.along):
                raise ValueError("a wait along an axis that the mesh lacks")
            if any(len(step) != len(self.mesh) for wait in each.waits for step in wait.offsets):
                raise ValueError("an offset without a step along each axis of the mesh")


def mesh_text(sizes: Mapping[str, int]) -> str:
    """The axes of a mesh and their sizes as users write them: `data=2,model=2`."""
    return ",".join(f"{name}={size}" for name, size in sizes.items())


def read_program(path: str | os.PathLike) -> Program:
    """Reads the program in the file `path`. Raises Refused if it is not one, OSError if it cannot be read."""
    return records.read_json(path, Program)


def to_json(program: Program) -> bytes:
    """The text of a file that `read_program` reads."""
    return msgspec.json.encode(program) + b"\n"
