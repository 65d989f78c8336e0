"""What all ranks of a run do together with its files: open the directory, close the traces. Collective throughout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from miniapps.system.place import Place, PlaceError
from miniapps.trace import TraceError, Tracer
from miniapps.trace.schema import rank_file
from miniapps.untrusted.result import parts_of

Lost = tuple[int, str]  # a rank, and what happened to its part of the run


def open_place(comm: Any, out: Path) -> Place:
    """The directory of the run. Raises PlaceError on all ranks where one of them cannot open it."""
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
    """Close the traces of all ranks, complete if each of them is where it was and could be written. `result`: what
    rank 0 writes into result.json beside their seals; its trace states the hash of each part.

    Returns the first that is not, if any, and the seal of this rank's file by its name.
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
    """The first rank that has any `trouble`, with what it is."""
    return next(((rank, text) for rank, text in enumerate(comm.allgather(trouble)) if text), None)
