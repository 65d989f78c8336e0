"""The raw log of a preloaded program: one record for each call of MPI, as preload/log.hpp writes it.

Nothing of it is believed before it was checked: the program that wrote it was someone's, and may have been killed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from miniapps.received.regular import Refused, read_bytes
from miniapps.received.text import printable

MAGIC, VERSION, PAGE = 0x31474F4C414E5046, 1, 4096
HEADER = np.dtype(
    [
        ("magic", "<u8"), ("version", "<u4"), ("record_bytes", "<u4"), ("committed", "<u8"), ("rank", "<i4"),
        ("size", "<i4"), ("began", "<i8"), ("ended", "<i8"), ("offset", "<i8"),
    ]
)  # fmt: skip
RECORD = np.dtype(
    [
        ("number", "<u8"), ("begin", "<i8"), ("end", "<i8"), ("site", "<u8"), ("in", "V16"), ("out", "V16"),
        ("count", "<i8"), ("bytes", "<i8"), ("comm", "<i4"), ("comm_size", "<i4"), ("peer", "<i4"), ("tag", "<i4"),
        ("kind", "<u2"), ("op", "<u2"), ("type", "<u2"), ("flags", "<u2"), ("epoch", "<u8"),
    ]
)  # fmt: skip
# In the order of preload/observe.cpp.
KINDS = (
    "MPI_Allreduce", "MPI_Reduce", "MPI_Reduce_scatter", "MPI_Reduce_scatter_block", "MPI_Allgather", "MPI_Allgatherv",
    "MPI_Bcast", "MPI_Alltoall", "MPI_Alltoallv", "MPI_Scan", "MPI_Exscan", "MPI_Gather", "MPI_Gatherv", "MPI_Scatter",
    "MPI_Scatterv", "MPI_Barrier", "MPI_Send", "MPI_Recv",
)  # fmt: skip
IN_PLACE, WILDCARD, NONBLOCKING, PACKED, UNHASHED, FAILED = (1 << i for i in range(6))
MOST = 64 * 2**30  # bytes of a log
TEXTS = 64 * 2**20  # bytes of the file beside it
RANKS = 2**24


@dataclass(frozen=True)
class Site:
    """Where in the program a call stands: the file that holds the code, the place in it, and the symbol it exports."""

    file: str
    offset: int
    symbol: str


@dataclass
class RawLog:
    """What one rank recorded. `records`: (n,) of RECORD, in the order in which calls ended; `ended` is 0 where the program
    did not reach MPI_Finalize. Names by number: `sites` by return address."""

    rank: int
    size: int
    began: int
    ended: int
    offset: int
    records: np.ndarray
    sites: dict[int, Site] = field(default_factory=dict)
    types: dict[int, str] = field(default_factory=dict)
    operations: dict[int, str] = field(default_factory=dict)
    library: str = ""


def read(path: Path) -> RawLog:
    """The log `path` (raw-RANK.log) and the texts beside it. Raises OSError where it cannot be read, and Refused where it
    is damaged or none of ours."""
    where = printable(str(path))
    data = read_bytes(path, MOST)
    if len(data) < PAGE:
        raise Refused(f"{where}: {len(data)} bytes, less than its first page; leave it out")
    head = np.frombuffer(data, HEADER, 1)[0]
    if (head["magic"], head["version"], head["record_bytes"]) != (MAGIC, VERSION, RECORD.itemsize):
        raise Refused(f"{where}: no log of calls of version {VERSION}; leave it out")
    rank, size, committed = (int(head[name]) for name in ("rank", "size", "committed"))
    if not (0 <= rank < size <= RANKS and PAGE + committed * RECORD.itemsize <= len(data)):
        raise Refused(f"{where}: damaged: rank {rank} of {size}, {committed} records in {len(data)} bytes; leave it out")
    records = np.frombuffer(data, RECORD, committed, PAGE)
    if len(records) and not (records["kind"] < len(KINDS)).all():
        raise Refused(f"{where}: damaged: a call of a kind that does not exist; leave it out")
    log = RawLog(rank, size, int(head["began"]), int(head["ended"]), int(head["offset"]), records)
    _read_texts(path.with_suffix(".txt"), log)
    return log


def _read_texts(path: Path, log: RawLog) -> None:
    """The names in the file beside a log; a last line that a kill cut off is as if not written."""
    for line in read_bytes(path, TEXTS).decode(errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if not isinstance(entry, dict):
            continue
        name = str(entry.get("name", ""))
        match entry:
            case {"site": int(site), "file": str(file), "offset": int(offset), "symbol": str(symbol)}:
                log.sites[site] = Site(file, offset, symbol)
            case {"type": int(number)}:
                log.types[number] = name
            case {"op": int(number)}:
                log.operations[number] = name
            case {"library": str(library)}:
                log.library = library
