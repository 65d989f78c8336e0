"""schedule.json: kernels and buffers of a static schedule, as far as they are drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from miniapps.untrusted.records import read_json
from miniapps.untrusted.regular import Refused
from miniapps.untrusted.text import printable

SCHEDULE = "schedule.json"
MOST = 2**24  # bytes: a kernel takes less than 1 kB
Place = Annotated[int, Meta(ge=0, le=2**40)]
Number = Annotated[int, Meta(ge=0, le=2**16)]  # of a kernel
Name = Annotated[str, Meta(max_length=256)]


class Kernel(msgspec.Struct):
    """One call: `per` "sample" after sample, or once for all samples of a "tile"; `share` of the predicted time."""

    kernel: Name
    per: Literal["sample", "tile"]
    share: Annotated[float, Meta(ge=0, le=1)]


class Buffer(msgspec.Struct):
    """A place in the arena, `bytes` for each of so many `samples` (1: one after the other) from `offset` on. `written`
    and `read` are the numbers of the kernel that writes it first and of the last that needs it; `first` and `last`
    those between which it is kept."""

    name: Name
    offset: Place
    bytes: Place
    samples: Annotated[int, Meta(ge=1, le=2**20)]
    written: Number
    read: Number
    first: Number
    last: Number


class Price(msgspec.Struct):
    """How many operations take as long as the reading or writing of a byte."""

    flops_per_byte: Annotated[float, Meta(gt=0)]


class Schedule(msgspec.Struct):
    """What is drawn of `kernels.inference.schedule.Schedule.as_json()`."""

    tile: Annotated[int, Meta(ge=1, le=2**20)]
    kernels: Annotated[list[Kernel], Meta(min_length=1, max_length=2**16)]
    buffers: Annotated[list[Buffer], Meta(max_length=2**16)]
    price: Price


def read_schedule(path: Path) -> Schedule:
    """The schedule in the file `path`. Raises FileNotFoundError where there is none, OSError where it cannot be read,
    and Refused where it is none of ours, or has buffers that its kernels cannot use."""
    schedule = read_json(path, Schedule, MOST)
    buffers, kernels = len(schedule.buffers), len(schedule.kernels)
    if buffers > kernels:  # each kernel writes one
        raise Refused(
            f"{printable(str(path))}: {buffers} buffers of {kernels} kernels: damaged; copy it again"
        )
    for buffer in schedule.buffers:
        ordered = (buffer.first, buffer.written, buffer.read, buffer.last, kernels - 1)
        if list(ordered) != sorted(ordered):
            raise Refused(
                f"{printable(str(path))}: buffer {printable(buffer.name)} is kept from kernel {buffer.first} to "
                f"{buffer.last} of {kernels} and used from {buffer.written} to {buffer.read}, which no "
                "schedule has; copy it again"
            )
    return schedule
