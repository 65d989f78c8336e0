"""Open Trace Format 2, the traces of Score-P: what Vampir, Scalasca and otf2-print open.

An archive is a directory with `traces.otf2`. A location per rank in a location group per process, on the node where it
ran; Enter and Leave per region, with the attributes step, repeat and bytes; MpiCollectiveBegin and MpiCollectiveEnd
where all ranks of the slice take part, as analyses of waiting time need them all. Exchanges are regions of role
point-to-point: which message went where in them is not recorded. Regions that overlap without nesting are on further
locations of the process, since those of one location must nest.
Format: Eschweiler et al., Open Trace Format 2, PARCO 2011.
"""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path

import pandas as pd

from analysis.export.slices import Slice, kind

PACKAGES = ("otf2",)
OPEN_WITH = "for Vampir, Scalasca, otf2-print"
ARCHIVE = "traces"


def existing(out: Path) -> Path | None:
    """What `write` would write over."""
    return out if out.exists() else None


def write(part: Slice, out: Path) -> list[Path]:
    """Write `part` into the new directory `out`. Raises OSError, and removes the directory, when that fails."""
    import otf2
    from _otf2 import Error

    out.mkdir()
    try:
        trace = otf2.writer.Writer(str(out), ARCHIVE, timer_resolution=1_000_000_000)
        try:
            _write(part, trace)
            written = {place._ref: place._number_of_events_written for place in trace.definitions.locations}
            trace.close()
        finally:
            # Or it would be closed once more when it is deleted, which fails after an error.
            trace._handle = None
        _check(out / f"{ARCHIVE}.otf2", written)
    except BaseException as error:
        shutil.rmtree(out)
        if isinstance(error, Error):
            raise OSError(None, f"OTF2 says {error}") from error
        raise
    return [out / f"{ARCHIVE}.otf2"]


def _check(anchor: Path, written: dict[int, int]) -> None:
    """Count the events of each location again: that a disk was full the library tells nobody but standard error."""
    import _otf2 as library  # without callbacks in Python this takes 1 % of the time of writing

    handle = library.Reader_Open(str(anchor))
    try:
        library.Reader_SetSerialCollectiveCallbacks(handle)
        for location in written:
            library.Reader_SelectLocation(handle, location)
        library.Reader_OpenEvtFiles(handle)
        for location, events in written.items():
            reader = library.Reader_GetEvtReader(handle, location)
            read = library.Reader_ReadAllLocalEvents(handle, reader)
            library.Reader_CloseEvtReader(handle, reader)
            if read != events:
                raise OSError(None, f"OTF2 wrote {read} of {events} events")
        library.Reader_CloseEvtFiles(handle)
    finally:
        library.Reader_Close(handle)


def _write(part: Slice, trace) -> None:
    import otf2

    trace.creator = "fpna-miniapps, python -m analysis export"
    trace.description = f"{part.title}, run {part.path.name}"
    places = _locations(part, trace.definitions)
    make = trace.definitions
    ranks = [places[rank, 0] for rank in part.attributes]
    # The ranks of a communicator count in the one group of all locations that use MPI, which must come before it.
    make.group("MPI locations", otf2.GroupType.COMM_LOCATIONS, otf2.Paradigm.MPI, members=ranks)
    everyone = make.group("ranks", otf2.GroupType.COMM_GROUP, otf2.Paradigm.MPI, members=ranks)
    world = make.comm("MPI_COMM_WORLD", group=everyone)
    regions = [_region(name, make) for name in part.events["name"].cat.categories]
    attributes = {
        column: make.attribute(column, f"{column} of the region", otf2.Type.INT64)
        for column in ("repeat", "step", "bytes")
    }
    for rank, lane, own in part.pieces():
        _events(own, trace.event_writer_from_location(places[rank, lane]), regions, attributes, world)
    _started(part, trace)


def _locations(part: Slice, make) -> dict:
    """{(rank, lane): location}."""
    machine = make.system_tree_node("machine", class_name="machine")
    nodes, found = {}, {}
    lanes = part.events.groupby("rank")["lane"].max()
    for rank in part.attributes:
        node = part.node(rank)
        if node not in nodes:
            nodes[node] = make.system_tree_node(node, class_name="node", parent=machine)
        group = make.location_group(f"rank {rank}", system_tree_parent=nodes[node])
        found[rank, 0] = make.location(f"rank {rank}", group=group)
        for lane in range(1, int(lanes.get(rank, 0)) + 1):
            found[rank, lane] = make.location(f"rank {rank}, overlapping regions {lane}", group=group)
    return found


def _region(name: str, make):
    import otf2

    role, paradigm = {
        "collective": (otf2.RegionRole.COLL_ALL2ALL, otf2.Paradigm.MPI),
        "exchange": (otf2.RegionRole.POINT2POINT, otf2.Paradigm.MPI),
        "local": (otf2.RegionRole.CODE, otf2.Paradigm.USER),
    }[kind(name)]
    return make.region(name, region_role=role, paradigm=paradigm)


def _events(own: pd.DataFrame, writer, regions: list, attributes: dict, world) -> None:
    """Enter and Leave of regions that nest, sorted by start with outer ones first."""
    import otf2

    nobody = otf2.Undefined.UINT32.value  # an all-reduce has no root
    still_open: list[tuple] = []

    def leave() -> None:
        end, region, collective, size = still_open.pop()
        if collective >= 0:
            writer.mpi_collective_end(end, otf2.CollectiveOp.ALLREDUCE, world, nobody, size, size)
        writer.leave(end, region)

    columns = [own["name"].cat.codes, *(own[c] for c in ("start", "end", "depth", "collective", *attributes))]
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
    """Say when the first event happened, as far as the start of the run tells: the writer knows no other way, and would
    put the time of this export there."""
    try:
        started = datetime.datetime.fromisoformat(next(iter(part.attributes.values()))["started"])
    except (KeyError, ValueError):
        return
    trace._realtime_timestamp = started.timestamp() + int(part.events["start"].min()) / 1e9
