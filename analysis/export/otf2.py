"""Writes Open Trace Format 2, the format of Score-P, for Vampir, Scalasca and otf2-print.

An archive is a directory with `traces.otf2`. It has a location per rank in a location group per process, on the node of
the rank. Each region has Enter and Leave, with the attributes step, repeat and bytes. A collective has
MpiCollectiveBegin and MpiCollectiveEnd only if all ranks of the slice take part, since analyses of waiting time need
all of them. Exchanges are regions of the role point-to-point, since their messages were not recorded. Regions that
overlap without nesting are on further locations of the process, since regions of one location must nest.
Format: Eschweiler et al., Open Trace Format 2, PARCO 2011.
"""

from __future__ import annotations

import ctypes
import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from analysis.export.output import new_directory
from analysis.export.slices import Slice

PACKAGES = ("otf2",)
OPEN_WITH = "for Vampir, Scalasca, otf2-print"
ARCHIVE = "traces"
CHUNK = (
    2**18
)  # bytes of a location's buffer, which OTF2 keeps in memory to the end: the smallest allowed size


def existing(out: Path) -> Path | None:
    """An existing path that `write` would overwrite; None if there is none."""
    return out if out.exists() else None


def bytes_of(out: Path) -> float:
    """Approximate bytes per event in `out`."""
    return 42.0


def write(part: Slice, out: Path) -> list[Path]:
    """Writes `part` into the new directory `out`. If that fails, it removes the directory and raises OSError."""
    import otf2
    from _otf2 import Error

    with new_directory(out) as place, _errors() as messages:
        trace = otf2.writer.Writer(
            str(place), ARCHIVE, timer_resolution=1_000_000_000, chunk_size_events=CHUNK
        )
        try:
            _write(part, trace)
            trace.close()
        except Error as error:
            raise OSError(None, f"OTF2 says {error}") from error
        finally:
            # Without this, its destructor would close it again, which fails after an error.
            trace._handle = None
        if messages:
            raise OSError(None, f"OTF2 says {messages[0]}")
    return [out / f"{ARCHIVE}.otf2"]


@contextmanager
def _errors() -> Iterator[list[str]]:
    """Yields a list to which OTF2's error messages are added; OTF2 reports a full disk only to its error handler."""
    from _otf2 import Error_GetDescription, ErrorCode
    from _otf2.Config import conf

    messages: list[str] = []

    def note(_data, _file, _line, _function, code, _message, _arguments) -> int:
        messages.append(str(Error_GetDescription(ErrorCode(code))))
        return code

    # OTF2_ErrorCallback (OTF2_ErrorCodes.h); a va_list is passed by address, and left alone.
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_int,
        ctypes.c_char_p, ctypes.c_void_p,
    )  # fmt: skip
    register = conf.lib.OTF2_Error_RegisterCallback
    register.argtypes, register.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_void_p
    handler = kind(note)
    before = register(ctypes.cast(handler, ctypes.c_void_p), None)
    try:
        yield messages
    finally:
        register(before, None)


def _write(part: Slice, trace) -> None:
    import otf2

    trace.creator = "fpna-miniapps, python -m analysis export"
    trace.description = f"{part.title}, run {part.name}"
    make = trace.definitions
    machine = make.system_tree_node("machine", class_name="machine")
    nodes = {
        node: make.system_tree_node(node, class_name="node", parent=machine)
        for node in dict.fromkeys(map(part.node, part.attributes))
    }
    groups = {
        rank: make.location_group(f"rank {rank}", system_tree_parent=nodes[part.node(rank)])
        for rank in part.attributes
    }
    ranks = {rank: make.location(f"rank {rank}", group=group) for rank, group in groups.items()}
    # Ranks of a communicator are indices into the single group COMM_LOCATIONS, which must be defined before it.
    members = list(ranks.values())
    make.group("MPI locations", otf2.GroupType.COMM_LOCATIONS, otf2.Paradigm.MPI, members=members)
    everyone = make.group("ranks", otf2.GroupType.COMM_GROUP, otf2.Paradigm.MPI, members=members)
    world = make.comm("MPI_COMM_WORLD", group=everyone)
    regions = [_region(name, waits, make) for name, waits in part.waits.items()]
    attributes = {
        column: make.attribute(column, f"{column} of the region", otf2.Type.INT64)
        for column in ("repeat", "step", "bytes")
    }
    for rank, lane, own in part.pieces():
        name = f"rank {rank}, overlapping regions {lane}"
        place = make.location(name, group=groups[rank]) if lane else ranks[rank]
        _events(own, trace.event_writer_from_location(place), regions, attributes, world)
    _started(part, trace)


def _region(name: str, waits: str, make):
    import otf2

    role, paradigm = {
        "collective": (otf2.RegionRole.COLL_ALL2ALL, otf2.Paradigm.MPI),
        "exchange": (otf2.RegionRole.POINT2POINT, otf2.Paradigm.MPI),
        "local": (otf2.RegionRole.CODE, otf2.Paradigm.USER),
    }[waits]
    return make.region(name, region_role=role, paradigm=paradigm)


def _events(own: pd.DataFrame, writer, regions: list, attributes: dict, world) -> None:
    """Writes Enter and Leave of the regions `own`, which nest and are sorted by start, outer ones first."""
    import otf2

    nobody = otf2.Undefined.UINT32.value  # an all-reduce has no root
    still_open: list[tuple] = []

    def leave() -> None:
        end, region, collective, size = still_open.pop()
        if collective >= 0:
            writer.mpi_collective_end(end, otf2.CollectiveOp.ALLREDUCE, world, nobody, size, size)
        writer.leave(end, region)

    # Only the first location of a rank is an MPI process: on further locations collectives are written as local work.
    in_turn = own["collective"].where(own["lane"] == 0, -1)
    columns = [own["name"].cat.codes, *(own[c] for c in ("start", "end", "depth")), in_turn,
               *(own[c] for c in attributes)]  # fmt: skip
    for code, start, end, depth, collective, *values in zip(*(c.tolist() for c in columns), strict=True):
        while len(still_open) > depth:
            leave()
        writer.enter(start, regions[code], attributes=dict(zip(attributes.values(), values, strict=True)))
        if collective >= 0:
            writer.mpi_collective_begin(start)
        still_open.append((end, regions[code], collective, values[-1]))
    while still_open:
        leave()


def _started(part: Slice, trace) -> None:
    """Sets the time of day of the first event from the start of the run, else the writer would use the current time."""
    try:
        started = datetime.datetime.fromisoformat(next(iter(part.attributes.values()))["started"])
    except (KeyError, ValueError):
        return
    trace._realtime_timestamp = started.timestamp() + trace._first_timestamp / 1e9
