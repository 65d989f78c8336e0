"""JSON files about tables of embeddings: timed steps (from `python -m miniapps.embeddings`) and the sharding that
`python -m analysis sharding` chose from them."""

from __future__ import annotations

import os
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from miniapps.untrusted.records import decode
from miniapps.untrusted.regular import Refused, read_bytes
from miniapps.untrusted.text import printable

MOST = 2**26  # bytes of a file
Share = Annotated[float, Meta(ge=0, le=1)]
Seconds = Annotated[float, Meta(gt=0, le=1e6)]
Count = Annotated[float, Meta(ge=0, le=1e15)]
Rank = Annotated[int, Meta(ge=0, lt=2**16)]
Name = Literal["replicated", "table", "column", "row", "row-pooled"]


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """The lookups in a table of `rows` x `columns` in a step of `samples` samples: `lookups` rows in total.

    `classes`: (rows, share of the lookups); `shares`: the share of the lookups of each block of rows."""

    name: Annotated[str, Meta(max_length=256)]
    rows: Annotated[int, Meta(ge=1, le=2**31)]
    columns: Annotated[int, Meta(ge=1, le=2**16)]
    samples: Count
    lookups: Count
    classes: Annotated[
        list[tuple[Annotated[float, Meta(gt=0, le=1e12)], Share]], Meta(min_length=1, max_length=64)
    ]
    shares: Annotated[list[Share], Meta(min_length=1, max_length=2**16)]


class Step(msgspec.Struct, forbid_unknown_fields=True):
    """A step of a problem: the sharding of each table, with its rank if one rank holds it. `wall`: seconds of the
    slowest rank; `cpu`: its seconds if each rank had its own processor."""

    shardings: Annotated[list[tuple[Name, Rank]], Meta(min_length=1, max_length=4096)]
    wall: Seconds
    cpu: Seconds


class Problem(msgspec.Struct, forbid_unknown_fields=True):
    """Tables, and their steps under several shardings."""

    tables: Annotated[list[Asked], Meta(min_length=1, max_length=4096)]
    steps: Annotated[list[Step], Meta(min_length=1, max_length=10**4)]


class Measured(msgspec.Struct, forbid_unknown_fields=True):
    """Timed steps on `ranks` ranks of a machine with the processor `cpu`; `order`: of the sums."""

    format: Literal["fpna-lookups"]
    schema: Literal[1]
    ranks: Annotated[int, Meta(ge=1, lt=2**16)]
    order: Literal["sorted", "exact"]
    cpu: Annotated[str, Meta(max_length=1024)]
    problems: Annotated[list[Problem], Meta(min_length=1, max_length=10**4)]


class Chosen(msgspec.Struct, forbid_unknown_fields=True):
    """A sharding on `ranks` ranks for `tables`, (name, number of rows) each."""

    format: Literal["fpna-sharding"]
    schema: Literal[1]
    ranks: Annotated[int, Meta(ge=1, lt=2**16)]
    tables: Annotated[
        list[tuple[Annotated[str, Meta(max_length=256)], int]], Meta(min_length=1, max_length=4096)
    ]
    sharding: Annotated[str, Meta(max_length=2**17)]
    seconds: Seconds


def read_measured(path: str | os.PathLike) -> Measured:
    """Reads the timed steps in `path`, a path from the command line. Raises Refused, or OSError and ValueError as
    `open` does."""
    measured = decode(read_bytes(path, MOST, links=True), Measured, printable(os.fspath(path)))
    for number, problem in enumerate(measured.problems):
        for step in problem.steps:
            ranks = [rank for _, rank in step.shardings]
            if len(ranks) != len(problem.tables) or max(ranks) >= measured.ranks:
                raise Refused(
                    f"{printable(os.fspath(path))}: problem {number}: a step has {len(ranks)} shardings for "
                    f"{len(problem.tables)} tables, or a rank above {measured.ranks - 1}; measure again"
                )
    return measured


def read_chosen(path: str | os.PathLike) -> Chosen:
    """Reads the sharding in `path`, a path from the command line; raises as `read_measured`."""
    return decode(read_bytes(path, MOST, links=True), Chosen, printable(os.fspath(path)))
