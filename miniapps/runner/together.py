"""Collective work on the files of a run: open the directory, close the traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from miniapps.system.place import Place, PlaceError
from miniapps.trace import TraceError, Tracer
from miniapps.trace.schema import rank_file
from miniapps.untrusted.result import parts_of

Lost = tuple[int, str]  # (rank, reason why its part of the run is lost)


def open_place(comm: Any, out: Path) -> Place:
    """Opens the directory of the run. Raises PlaceError on all ranks if one of them cannot open it."""
    try:
        place, trouble = Place(out), ""
    except PlaceError as error:
        place, trouble = None, str(error)
    lost = first(comm, trouble)
    if place is not None and lost is None:
        return place
    rank, why = lost or (comm.rank, trouble)
    raise PlaceError(f"rank {rank}: {why}")


def close_trace(
    comm: Any, tracer: Tracer, clock_drift: float, result: dict[str, Any]
) -> tuple[Lost | None, dict[str, str]]:
    """Close the traces of all ranks, as complete if every file is still in its place and was written. `result`: the
    contents of result.json without the seals; the trace of rank 0 states the hash of each part.

    Returns the first lost trace, if any, and the seal of this rank's file by its name.
    """
    trouble, seals = "", {}
    try:
        stated = {"result": parts_of(result)} if comm.rank == 0 else {}
        tracer.attributes(clock_drift=clock_drift, **stated)
        tracer.flush()
    except TraceError as error:
        trouble = str(error)
    lost = first(comm, trouble)
    try:
        if seal := tracer.close(complete=lost is None):
            seals[rank_file(comm.rank)] = seal
    except TraceError as error:
        trouble = str(error)
    return lost or first(comm, trouble), seals


def first(comm: Any, trouble: str) -> Lost | None:
    """The first rank with a `trouble`, and its text. Collective."""
    return next(((rank, text) for rank, text in enumerate(comm.allgather(trouble)) if text), None)
