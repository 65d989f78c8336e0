"""The raw log of a preloaded program: one record for each call of MPI, as preload/log.hpp writes it.

Nothing of it is believed before it was checked: the program that wrote it was someone's, and may have been killed.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kernels.guarantees import LEVELS
from kernels.sizes import COLUMNS
from miniapps.programs.functions import ORDER
from miniapps.programs.places import Place, Places
from miniapps.received.regular import Refused, open_regular, read_bytes
from miniapps.received.text import printable

MAGIC, VERSION, PAGE = 0x31474F4C414E5046, 3, 4096
MOST_COUNTED = 240
HEADER = np.dtype(
    [
        ("magic", "<u8"), ("version", "<u4"), ("record_bytes", "<u4"), ("committed", "<u8"), ("rank", "<i4"),
        ("size", "<i4"), ("began", "<i8"), ("ended", "<i8"), ("offset", "<i8"), ("unseen", "<u8", MOST_COUNTED),
        ("unseen_of_all", "<u8", MOST_COUNTED),
    ]
)  # fmt: skip
SIZES = np.dtype([("count", "<i8"), *((column, "<f8") for column in COLUMNS)])
RECORD = np.dtype(
    [
        ("number", "<u8"), ("begin", "<i8"), ("end", "<i8"), ("site", "<u8"), ("in", "V16"), ("out", "V16"),
        ("count", "<i8"), ("bytes", "<i8"), ("comm", "<i4"), ("comm_size", "<i4"), ("peer", "<i4"), ("tag", "<i4"),
        ("kind", "<u2"), ("op", "<u2"), ("type", "<u2"), ("flags", "<u2"),
        ("in_basic", "<u2"), ("out_basic", "<u2"), ("unused", "<u4"), ("in_sizes", SIZES), ("out_sizes", SIZES),
    ]
)  # fmt: skip
# In the order of preload/shapes.hpp.
KINDS = (
    "MPI_Allreduce", "MPI_Reduce", "MPI_Reduce_scatter", "MPI_Reduce_scatter_block", "MPI_Allgather", "MPI_Allgatherv",
    "MPI_Bcast", "MPI_Alltoall", "MPI_Alltoallv", "MPI_Scan", "MPI_Exscan", "MPI_Gather", "MPI_Gatherv", "MPI_Scatter",
    "MPI_Scatterv", "MPI_Barrier", "MPI_Send", "MPI_Ssend", "MPI_Bsend", "MPI_Rsend", "MPI_Recv", "MPI_Probe",
    "MPI_Iprobe", "MPI_Mprobe", "MPI_Improbe", "MPI_Mrecv", "MPI_Sendrecv", "MPI_Sendrecv_replace",
)  # fmt: skip
# In the order of preload/log.hpp.
IN_PLACE, WILDCARD, NONBLOCKING, PERSISTENT, PACKED, FAILED, REPLACED, INTER, OTHER_THREAD = (
    1 << i for i in range(9)
)
# In the order of preload/numbers.hpp: what the numbers are that sizes are of.
BASICS = ("", "float64", "float32", "float16", "longdouble", "complex128", "complex64", "clongdouble", "int8", "int16",
          "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")  # fmt: skip
MOST = 2**40  # bytes of a log: it is mapped, not read
TEXTS = 2**30  # bytes of the file beside it: a place takes some hundred
RANKS = 2**24
DIRECTIONS = ("up", "down")  # in which all arithmetic of a launch may be rounded


@dataclass(frozen=True)
class Communicator:
    """What communicators of one number are called, and how many calls of this rank came before the first of them."""

    name: str
    born: int


@dataclass
class RawLog:
    """What one rank recorded. `records`: (n,) of RECORD, in the order in which calls began; `ended` is 0 where the
    program did not reach MPI_Finalize. `places` are by the number that records have as `site`. `unseen`: calls by
    function that were counted and not recorded, `unseen_of_all` those of all ranks (rank 0 has them at the end);
    `python_sites`: where mpi4py added Python objects; `unrepeated`: calls during a replay that repeat no
    order."""

    rank: int
    size: int
    began: int
    ended: int
    offset: int
    records: np.ndarray
    places: Places = field(default_factory=Places)
    types: dict[int, str] = field(default_factory=dict)
    operations: dict[int, str] = field(default_factory=dict)
    communicators: dict[int, Communicator] = field(default_factory=dict)
    counted: list[str] = field(default_factory=list)
    python_sites: set[int] = field(default_factory=set)
    unseen: dict[str, int] = field(default_factory=dict)
    unseen_of_all: dict[str, int] = field(default_factory=dict)
    unrepeated: dict[str, int] = field(default_factory=dict)
    library: str = ""
    command: list[str] = field(default_factory=lambda: ["program"])
    same_but: list[str] = field(default_factory=list)
    guarantee: str = "none"
    replay: str = ""
    disturb: int | str | None = None  # the seed, or the direction of rounding
    point_to_point: bool = False
    run_id: str = ""
    started: str = ""

    def python_sums(self) -> list[str]:
        """Where Python objects were added by mpi4py."""
        words = self.places.words()
        return sorted({words[site] for site in self.python_sites if site in words})

    def label(self, row: np.void) -> str:
        """The name of the call that a record is of: `MPI_Iallreduce`."""
        return label(int(row["kind"]), int(row["flags"]))


def label(kind: int, flags: int) -> str:
    """The name of a call of this kind: of the form that NONBLOCKING and PERSISTENT say."""
    name = KINDS[kind]
    if flags & PERSISTENT:
        return f"{name}_init"
    return f"MPI_I{name[4:].lower()}" if flags & NONBLOCKING else name


def call_of(name: str) -> tuple[int, int]:
    """Kind and form of the call with this label; -1 and 0 where there is none."""
    forms = (0, NONBLOCKING, NONBLOCKING | PERSISTENT)
    found = ((kind, form) for form in forms for kind in range(len(KINDS)) if label(kind, form) == name)
    return next(found, (-1, 0))


def read(path: Path) -> RawLog:
    """The log `path` (raw-RANK.log) and the texts beside it. Raises OSError where it cannot be read, Refused where it
    is damaged or none of ours."""
    where = printable(str(path))
    with open_regular(path, MOST) as file:
        length = os.fstat(file.fileno()).st_size
        if length < PAGE:
            raise Refused(f"{where}: {length} bytes, less than its first page; leave it out")
        data = np.memmap(file, np.uint8, "r")
    head = data[: HEADER.itemsize].view(HEADER)[0]
    if (head["magic"], head["version"], head["record_bytes"]) != (MAGIC, VERSION, RECORD.itemsize):
        raise Refused(f"{where}: no log of calls of version {VERSION}; leave it out")
    rank, size, committed = (int(head[name]) for name in ("rank", "size", "committed"))
    if not (0 <= rank < size <= RANKS and committed <= (length - PAGE) // RECORD.itemsize):
        raise Refused(
            f"{where}: damaged: rank {rank} of {size}, {committed} records in {length} bytes; leave it out"
        )
    records = data[PAGE : PAGE + committed * RECORD.itemsize].view(RECORD)
    if len(records) and not (records["number"][1:] > records["number"][:-1]).all():
        records = records[np.argsort(records["number"], kind="stable")]  # they stand there as the calls ended
    if len(records) and not (records["kind"] < len(KINDS)).all():
        raise Refused(f"{where}: damaged: a call of a kind that does not exist; leave it out")
    for side in ("in", "out") if len(records) else ():
        counts = records[f"{side}_sizes"]["count"]
        if not ((counts >= 0) & (counts < MOST)).all() or not (records[f"{side}_basic"] < len(BASICS)).all():
            raise Refused(f"{where}: damaged: sizes of what no call carries; leave it out")
    log = RawLog(rank, size, int(head["began"]), int(head["ended"]), int(head["offset"]), records)
    _read_texts(path.with_suffix(".txt"), log)
    for name, own, of_all in zip(
        log.counted, head["unseen"].tolist(), head["unseen_of_all"].tolist(), strict=False
    ):
        log.unseen |= {name: own} if own and not name.startswith(ORDER) else {}
        log.unseen_of_all |= {name: of_all} if of_all and not name.startswith(ORDER) else {}
        if name.startswith(ORDER) and (of_all or own):
            log.unrepeated[name.removeprefix(ORDER)] = of_all or own
    return log


def _typed(entry: Any, *types: type) -> list[tuple[Any, ...]]:
    """The entry by itself if it is a list of these types, numbers from 1 to 2^63, else nothing."""
    fits = isinstance(entry, list) and list(map(type, entry)) == list(types)
    return [tuple(entry)] if fits and all(0 < part < 2**63 for part in entry if type(part) is int) else []


def _read_texts(path: Path, log: RawLog) -> None:
    """The names in the file beside a log; a last line that a kill cut off is as if not written."""
    for line in read_bytes(path, TEXTS).decode(errors="replace").split("\n"):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if not isinstance(entry, dict):
            continue
        name = str(entry.get("name", ""))
        match entry:
            case {"site": int(site), "functions": list(functions), "lines": list(lines)}:
                log.places.by_number[site] = Place(
                    tuple((file, at) for match in functions for file, at in _typed(match, str, int)),
                    tuple((file, of, at) for match in lines for file, of, at in _typed(match, str, str, int)),
                )
            case {"file": str(file), "bytes": int(size), "modified": int(modified)}:
                log.places.files[file] = (size, modified)
            case {"type": int(number)}:
                log.types[number] = name
            case {"comm": int(number), "born": int(born)}:
                log.communicators[number] = Communicator(name, born)
            case {"python_sum": int(site)}:
                log.python_sites.add(site)
            case {"counted": list(names)}:
                log.counted = list(map(str, names))
            case {"op": int(number)}:
                log.operations[number] = name
            case {"library": str(library)}:
                log.library = library
            case {"command": [str(), *_] as command, "guarantee": str(guarantee)} if guarantee in LEVELS:
                log.command, log.guarantee = [str(word) for word in command], guarantee
                log.point_to_point = entry.get("point_to_point") is True
                seed = entry.get("disturb")
                log.disturb = seed if type(seed) is int or seed in DIRECTIONS else None
                same_but = entry.get("same_but")
                log.same_but = [str(word) for word in same_but] if isinstance(same_but, list) else []
                for field_name in ("replay", "run_id", "started"):
                    setattr(log, field_name, str(entry.get(field_name, "")))
