"""schedule.json: the kernels and buffers of a static schedule that the report draws."""

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
    """One call: `per` "sample", or once for all samples of a "tile"; `share` of the predicted time."""

    kernel: Name
    per: Literal["sample", "tile"]
    share: Annotated[float, Meta(ge=0, le=1)]


class Buffer(msgspec.Struct):
    """A place in the arena from `offset` on: `bytes` for each of `samples` samples (1: one sample after the other).

    `written`: the number of the kernel that writes it first; `read`: of the last kernel that reads it. It is kept from
    kernel `first` to `last`."""

    name: Name
    offset: Place
    bytes: Place
    samples: Annotated[int, Meta(ge=1, le=2**20)]
    written: Number
    read: Number
    first: Number
    last: Number


class Price(msgspec.Struct):
    """How many operations take as long as reading or writing a byte."""

    flops_per_byte: Annotated[float, Meta(gt=0)]


class Schedule(msgspec.Struct):
    """The fields of `kernels.inference.schedule.Schedule.as_json()` that the report draws."""

    tile: Annotated[int, Meta(ge=1, le=2**20)]
    kernels: Annotated[list[Kernel], Meta(min_length=1, max_length=2**16)]
    buffers: Annotated[list[Buffer], Meta(max_length=2**16)]
    price: Price


def read_schedule(path: Path) -> Schedule:
    """Reads the schedule in the file `path`.

    Raises FileNotFoundError if it is missing, OSError if it cannot be read, and Refused if it is not a schedule or has
    buffers that its kernels cannot use."""
    schedule = read_json(path, Schedule, MOST)
    buffers, kernels = len(schedule.buffers), len(schedule.kernels)
    if buffers > kernels:  # each kernel writes one
        raise Refused(
            f"{printable(str(path))}: damaged: {buffers} buffers, but only {kernels} kernels; copy it again"
        )
    for buffer in schedule.buffers:
        ordered = (buffer.first, buffer.written, buffer.read, buffer.last, kernels - 1)
        if list(ordered) != sorted(ordered):
            raise Refused(
                f"{printable(str(path))}: buffer {printable(buffer.name)} is kept from kernel {buffer.first} to "
                f"{buffer.last} of {kernels}, but used from {buffer.written} to {buffer.read}: damaged; copy it again"
            )
    return schedule
