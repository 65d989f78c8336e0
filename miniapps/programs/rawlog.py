"""Read and check the raw log of a preloaded program: one record for each MPI call, from preload/log.hpp.

A stranger's program may have written it, or may have been killed. Running hashes (preload/running.hpp) detect a changed
byte in the log and in the texts beside it; `read` accepts only a whole log.
"""

from __future__ import annotations

import io
import os
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from kernels.guarantees import LEVELS
from kernels.sizes import COLUMNS
from miniapps.programs.places import Place, Places, is_interface
from miniapps.system.kinds import Kind, grouped
from miniapps.untrusted import records
from miniapps.untrusted.regular import Refused, open_regular, read_bytes
from miniapps.untrusted.text import printable, whole

MAGIC, VERSION, PAGE = 0x31474F4C414E5046, 7, 4096
MOST_COUNTED = 240
HEADER = np.dtype(
    [
        ("magic", "<u8"), ("version", "<u4"), ("record_bytes", "<u4"), ("committed", "<u8"), ("rank", "<i4"),
        ("size", "<i4"), ("began", "<i8"), ("ended", "<i8"), ("offset", "<i8"), ("unseen", "<u8", MOST_COUNTED),
        ("unseen_of_all", "<u8", MOST_COUNTED), ("device", "<u8"), ("inode", "<u8"), ("texts", "<u8"),
        ("identity", "<u8"), ("closing", "<u8"),
    ]
)  # fmt: skip
SIZES = np.dtype([("count", "<i8"), *((column, "<f8") for column in COLUMNS)])
RECORD = np.dtype(
    [
        ("number", "<u8"), ("begin", "<i8"), ("end", "<i8"), ("site", "<u8"), ("in", "V16"), ("out", "V16"),
        ("count", "<i8"), ("bytes", "<i8"), ("at", "<i8"), ("comm", "<i4"), ("comm_size", "<i4"), ("peer", "<i4"),
        ("tag", "<i4"), ("kind", "<u2"), ("op", "<u2"), ("type", "<u2"), ("flags", "<u2"),
        ("in_basic", "<u2"), ("out_basic", "<u2"), ("check", "<u4"), ("in_sizes", SIZES), ("out_sizes", SIZES),
    ]
)  # fmt: skip
# In the order of preload/shapes.hpp.
KINDS = (
    "MPI_Allreduce", "MPI_Reduce", "MPI_Reduce_scatter", "MPI_Reduce_scatter_block", "MPI_Allgather", "MPI_Allgatherv",
    "MPI_Bcast", "MPI_Alltoall", "MPI_Alltoallv", "MPI_Scan", "MPI_Exscan", "MPI_Gather", "MPI_Gatherv", "MPI_Scatter",
    "MPI_Scatterv", "MPI_Barrier", "MPI_Neighbor_allgather", "MPI_Neighbor_allgatherv", "MPI_Neighbor_alltoall",
    "MPI_Neighbor_alltoallv", "MPI_Neighbor_alltoallw", "MPI_Send", "MPI_Ssend", "MPI_Bsend", "MPI_Rsend",
    "MPI_Recv", "MPI_Probe", "MPI_Iprobe", "MPI_Mprobe", "MPI_Improbe", "MPI_Mrecv", "MPI_Sendrecv",
    "MPI_Sendrecv_replace", "MPI_Test", "MPI_Testall", "MPI_Testany", "MPI_Testsome", "MPI_Waitany", "MPI_Waitsome",
    "MPI_Request_get_status", "MPI_Finalize", "MPI_File_write", "MPI_File_write_at", "MPI_File_write_shared",
    "MPI_File_write_all", "MPI_File_write_at_all", "MPI_File_write_ordered", "MPI_File_read", "MPI_File_read_at",
    "MPI_File_read_shared", "MPI_File_read_all", "MPI_File_read_at_all", "MPI_File_read_ordered", "MPI_Put", "MPI_Get",
    "MPI_Accumulate", "MPI_Get_accumulate", "MPI_Fetch_and_op", "MPI_Compare_and_swap", "MPI_Win_fence",
    "MPI_Win_wait", "MPI_Win_test",
)  # fmt: skip
# Calls that find requests complete, and the end; calls that write and read files; one-sided calls, and those that end
# exposures of windows.
FIRST_COMPLETION, LAST_COMPLETION = KINDS.index("MPI_Test"), KINDS.index("MPI_Finalize")
FIRST_WRITE, FIRST_READ = KINDS.index("MPI_File_write"), KINDS.index("MPI_File_read")
FIRST_ACCESS, FIRST_EXPOSURE = KINDS.index("MPI_Put"), KINDS.index("MPI_Win_fence")
# In the order of preload/log.hpp.
(IN_PLACE, WILDCARD, NONBLOCKING, PERSISTENT, PACKED, FAILED, REPLACED, INTER, OTHER_THREAD, COMPLETION,
 SPLIT, SCATTERED) = (1 << i for i in range(12))  # fmt: skip
# Of the flags, from this bit on: the guarantee of fpna's own sum to which a call belongs.
PROMISED_BITS, PROMISES = 12, ("", "run", "layout", "exact")
USER = "user operation"  # what begins the name of an operation of the program
# In the order of preload/numbers.hpp: the types of the numbers that have sizes.
BASICS = ("", "float64", "float32", "float16", "longdouble", "complex128", "complex64", "clongdouble", "int8", "int16",
          "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")  # fmt: skip
MOST = 2**40  # bytes of a log: it is mapped, not read
TEXTS = 2**25  # bytes of the file beside it, as in preload/running.hpp: a place takes some hundred
PIECE = 2**14  # records checked at once
LONGEST = 4096  # letters of the name of a file
NAME = re.compile(r"raw-(\d{5,9})\.log")
COUNT_BITS, GOLDEN = 40, 0x9E3779B97F4A7C15  # of a count, as in preload/running.hpp
SAID = struct.Struct("<QQQqqqqQQ")  # the data whose hash is `identity`
RANKS = 2**24
DIRECTIONS = ("up", "down")  # values of --disturb that round all arithmetic


@dataclass(frozen=True)
class NamedCommunicator:
    """The `name` of the communicators with one number; `born`: number of calls of this rank before the first one."""

    name: str
    born: int


@dataclass(frozen=True)
class Neighbours:
    """The ranks of MPI_COMM_WORLD from which a rank receives and to which it sends in a neighbourhood collective, in
    MPI's order; -1 for MPI_PROC_NULL, -2 for a rank outside MPI_COMM_WORLD."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]


@dataclass
class RawLog:
    """The log of one rank.

    records       (n,) of RECORD, in the order in which calls began
    completions   (m,) of RECORD, whose fields preload/completions.hpp states: requests that calls found complete, and
                  messages that nonblocking probes saw, in their order
    ended         0 if the program did not reach MPI_Finalize
    places        by the number `site` of records
    functions     of the program's operations: the place of the function, and whether it commutes by the program's word
    files         the names by which the program opened files, by the number `peer` of records
    unseen        number of calls that were counted and not recorded, by function; `unseen_of_all`: on all ranks, which
                  rank 0 has at the end
    by_rank       what decides the bits of libraries on each rank, on rank 0 and if ranks differ in it
    python_sites  places at which mpi4py added Python objects
    here          whether this user wrote this file, so that the files that it names are those of the program; for a
                  copy, none of them is read
    """

    rank: int
    size: int
    began: int
    ended: int
    offset: int
    records: np.ndarray
    completions: np.ndarray = field(default_factory=lambda: np.empty(0, RECORD))
    places: Places = field(default_factory=Places)
    types: dict[int, str] = field(default_factory=dict)
    operations: dict[int, str] = field(default_factory=dict)
    functions: dict[int, tuple[int, bool]] = field(default_factory=dict)
    communicators: dict[int, NamedCommunicator] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)
    neighbours: dict[int, Neighbours] = field(default_factory=dict)
    counted: list[str] = field(default_factory=list)
    by_rank: dict[int, dict[str, str]] = field(default_factory=dict)
    python_sites: set[int] = field(default_factory=set)
    unseen: dict[str, int] = field(default_factory=dict)
    unseen_of_all: dict[str, int] = field(default_factory=dict)
    library: str = ""
    command: list[str] = field(default_factory=lambda: ["program"])
    same_but: list[str] = field(default_factory=list)
    guarantee: str = "none"
    replay: str = ""
    disturb: int | str | None = None  # the seed, or the direction of rounding
    point_to_point: bool = False
    run_id: str = ""
    started: str = ""
    here: bool = False

    def name_operations(self, words: dict[int, str]) -> None:
        """Add their functions, of the places `words`, to the names of the program's operations: `user operation mysum
        (cg.c:12)`. A function of mpi4py calls one of Python, which is not known."""
        for number, (site, commutes) in self.functions.items():
            place = self.places.by_number.get(site)
            known = place is not None and not any(is_interface(file) for file, _ in place.functions)
            name = f"{USER} {words[site]}" if known else USER
            self.operations[number] = name if commutes else f"{name}, not commutative"

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of the ranks, which rank 0 knows; empty if all are equal."""
        known = len(self.by_rank) == self.size and all(rank in range(self.size) for rank in self.by_rank)
        if not known:  # without a list of all ranks: the file may state any size
            return ()
        return grouped([self.by_rank[rank] for rank in range(self.size)])

    def python_sums(self) -> list[str]:
        """The places at which mpi4py added Python objects, in words."""
        words = self.places.words()
        return sorted({words[site] for site in self.python_sites if site in words})

    def label(self, row: np.void) -> str:
        """The name of the call of a record, such as `MPI_Iallreduce`."""
        return label(int(row["kind"]), int(row["flags"]))


def label(kind: int, flags: int) -> str:
    """The name of a call of this kind, in the form of the flags NONBLOCKING, PERSISTENT and SPLIT."""
    name = KINDS[kind]
    if kind >= FIRST_ACCESS:
        return f"MPI_R{name[4:].lower()}" if flags & NONBLOCKING else name
    if kind >= FIRST_WRITE:
        form = name.replace("MPI_File_", "MPI_File_i") if flags & NONBLOCKING else name
        return f"{form}_begin" if flags & SPLIT else form
    if flags & PERSISTENT:
        return f"{name}_init"
    return f"MPI_I{name[4:].lower()}" if flags & NONBLOCKING else name


def call_of(name: str) -> tuple[int, int]:
    """(kind, form) of the call with this label; (-1, 0) for an unknown one."""
    forms = (0, NONBLOCKING, NONBLOCKING | PERSISTENT)
    found = ((kind, form) for form in forms for kind in range(len(KINDS)) if label(kind, form) == name)
    return next(found, (-1, 0))


def read(path: Path) -> RawLog:
    """Reads the log `path` (raw-RANK.log) and the texts beside it. Raises OSError if it cannot be read, Refused if it
    is damaged or not a log."""
    where = printable(str(path))
    with open_regular(path, MOST) as file:
        status = os.fstat(file.fileno())
        if status.st_size < PAGE:
            raise Refused(f"{where}: {status.st_size} bytes, less than its first page; leave it out")
        data = np.memmap(file, np.uint8, "r")
    head = data[: HEADER.itemsize].view(HEADER)[0]
    rank, rows, hashed = _believed(data, head, path, where)
    texts = _read_lines(path.with_suffix(".txt"), int(head["texts"]))
    if data[HEADER.itemsize : PAGE].any():
        raise _damaged(where, "the rest of its first page is not empty")
    if head["closing"] and xxhash.xxh3_64_intdigest(closing(head), hashed) != head["closing"]:
        raise _damaged(where, "the end of its header has changed")
    _require_known(rows, where)
    apart = rows["flags"] & COMPLETION != 0
    completions = rows[apart]
    rows = rows[~apart] if len(completions) else rows
    if len(rows) and not (rows["number"][1:] > rows["number"][:-1]).all():
        rows = rows[
            np.argsort(rows["number"], kind="stable")
        ]  # the log has them in the order in which calls ended
    ended = int(head["ended"]) if head["closing"] else 0
    log = RawLog(rank, int(head["size"]), int(head["began"]), ended, int(head["offset"]), rows, completions)
    own = (status.st_dev, status.st_ino, status.st_uid)
    log.here = own == (int(head["device"]), int(head["inode"]), os.getuid())
    for line in texts.values():
        _take(line, log, where)
    if not log.here:
        log.places.files.clear()
    unseen, of_all = (_counts(head[name], where) for name in ("unseen", "unseen_of_all"))
    for name, own_count, all_count in zip(log.counted, unseen, of_all, strict=False):
        log.unseen |= {name: own_count} if own_count else {}
        log.unseen_of_all |= {name: all_count} if all_count else {}
    return log


def identity(head: np.void) -> bytes:
    """The bytes whose hash is the `identity` of a header."""
    names = ("magic", "version", "record_bytes", "rank", "size", "began", "offset", "device", "inode")
    return SAID.pack(*(int(head[name]) for name in names))


def closing(head: np.void) -> bytes:
    """The bytes whose hash, after the records, is the `closing` of a header."""
    first = [
        int(head[name]).to_bytes(8, "little", signed=name == "ended")
        for name in ("committed", "ended", "texts")
    ]
    return b"".join([*first, head["unseen_of_all"].tobytes()])


def checked_counts(counts: np.ndarray) -> np.ndarray:
    """The counts of all counters, uint64, with a checksum of count and counter in their upper bits."""
    golden, bits = np.uint64(GOLDEN), np.uint64(COUNT_BITS)
    every = counts + (np.arange(1, len(counts) + 1, dtype=np.uint64) << bits)
    mixed: np.ndarray = (
        every * golden ^ every >> np.uint64(29)
    ) * golden  # arrays overflow without a warning
    words: np.ndarray = counts | mixed >> bits << bits
    return words


def _damaged(where: str, what: str) -> Refused:
    return Refused(f"{where}: damaged: {what}; the log stays, without a trace: copy it again")


def _believed(data: np.ndarray, head: np.void, path: Path, where: str) -> tuple[int, np.ndarray, int]:
    """Checks a log; returns (rank, records, the running hash after them). Raises Refused."""
    if (head["magic"], head["version"], head["record_bytes"]) != (MAGIC, VERSION, RECORD.itemsize):
        raise Refused(f"{where}: not a log of calls of version {VERSION}; leave it out")
    rank, committed = int(head["rank"]), int(head["committed"])
    if not head["identity"] and not committed:
        raise Refused(f"{where}: its program was killed before it recorded a call; remove it")
    hashed = xxhash.xxh3_64_intdigest(identity(head))
    if hashed != head["identity"] or not 0 <= rank < head["size"] <= RANKS:
        raise _damaged(where, "its header has changed")
    named = NAME.fullmatch(path.name)
    if named is None or int(named[1]) != rank:
        raise Refused(f"{where}: it is the log of rank {rank}; give it its name back, raw-{rank:05d}.log")
    if committed > (len(data) - PAGE) // RECORD.itemsize:
        raise _damaged(where, f"{committed:,} records in {len(data):,} bytes")
    return rank, *_whole(data, committed, hashed, bool(head["closing"]), where)


def _whole(data: np.ndarray, committed: int, hashed: int, closed: bool, where: str) -> tuple[np.ndarray, int]:
    """(records, the running hash after them). A log that was not `closed` may have one more record than its header
    states."""
    width, room = RECORD.itemsize, (len(data) - PAGE) // RECORD.itemsize
    most = committed if closed else min(committed + 2, room)
    for begin in range(0, most, PIECE):
        rows = np.array(data[PAGE + begin * width : PAGE + min(begin + PIECE, most) * width].view(RECORD))
        checks = rows["check"].tolist()
        rows["check"] = 0
        content = rows.tobytes()
        for i, check in enumerate(checks, begin):
            at = (i - begin) * width
            after = xxhash.xxh3_64_intdigest(content[at : at + width], hashed)
            if after & 0xFFFFFFFF != check:
                if i < committed:
                    raise _damaged(where, f"record {i:,} of {committed:,} has changed")
                return data[PAGE : PAGE + i * width].view(RECORD), hashed
            hashed = after
    if most > committed + 1:
        raise _damaged(where, f"it has more records than the {committed:,} of its header")
    return data[PAGE : PAGE + most * width].view(RECORD), hashed


def _require_known(rows: np.ndarray, where: str) -> None:
    """Raise Refused for records with impossible values."""
    calls = rows["flags"] & COMPLETION == 0
    found = (rows["kind"] >= FIRST_COMPLETION) & (rows["kind"] <= LAST_COMPLETION)
    if (rows["kind"] >= len(KINDS)).any() or (calls & found).any():
        raise _damaged(where, "it has a call of an unknown kind")
    for side in ("in", "out") if len(rows) else ():
        counts = rows[f"{side}_sizes"]["count"]
        if not ((counts >= 0) & (counts < MOST)).all() or not (rows[f"{side}_basic"] < len(BASICS)).all():
            raise _damaged(where, "it has impossible sizes of data")


def _counts(words: np.ndarray, where: str) -> list[int]:
    """Counts from words that also have a checksum. Raises Refused."""
    counts = words & np.uint64(2**COUNT_BITS - 1)
    if (checked_counts(counts) != words).any():
        raise _damaged(where, "a count of calls has changed")
    return [int(count) for count in counts.tolist()]


def _read_lines(path: Path, last: int) -> dict[int, bytes]:
    """{running hash: JSON} of the lines of a file of texts; one must have the hash `last`. Ignores an unfinished last
    line, after a kill. Raises Refused."""
    where, hashed = printable(str(path)), 0
    lines: dict[int, bytes] = {0: b""}
    try:
        content = io.BytesIO(read_bytes(path, TEXTS))
    except FileNotFoundError:
        if last:
            raise Refused(f"{where}: is missing; the log beside it needs its names: copy it, too") from None
        return lines
    for number, line in enumerate(content, start=1):
        if not line.endswith(b"\n"):
            break
        line = line[:-1]
        hashed = xxhash.xxh3_64_intdigest(line[17:], hashed)
        if line[:17] != b"%016x " % hashed:
            raise _damaged(where, f"line {number} has changed")
        lines[hashed] = line[17:]
    if last not in lines:
        raise _damaged(where, "lines are missing that the log beside it refers to")
    return lines


def _typed(entry: Any, *types: type) -> list[tuple[Any, ...]]:
    """A list with the entry as a tuple if it has these types and numbers from 1 to 2^63; else an empty list."""
    fits = isinstance(entry, list) and list(map(type, entry)) == list(types)
    return [tuple(entry)] if fits and all(0 < part < 2**63 for part in entry if type(part) is int) else []


def _ranks(ranks: list[Any]) -> tuple[int, ...]:
    return tuple(rank for rank in ranks if type(rank) is int and -2 <= rank < RANKS)


def _take(line: bytes, log: RawLog, where: str) -> None:
    """Add the content of a line of texts to `log`."""
    entry = whole(records.loads(line.decode(errors="replace").encode(), f"{where}: texts")) if line else None
    if not isinstance(entry, dict):
        return
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
            log.communicators[number] = NamedCommunicator(name, born)
        case {"opened": int(number)}:
            log.files[number] = name[:LONGEST]
        case {"neighbours": int(number), "from": list(sources), "to": list(targets)}:
            log.neighbours[number] = Neighbours(_ranks(sources), _ranks(targets))
        case {"python_sum": int(site)}:
            log.python_sites.add(site)
        case {"kind": dict(entries), "ranks": list(ranks)}:
            own = {str(key): str(value)[:LONGEST] for key, value in entries.items()}
            log.by_rank |= dict.fromkeys(_ranks(ranks), own)
        case {"counted": list(names)}:
            log.counted = list(map(str, names))
        case {"op": int(number)}:
            log.operations[number] = name
            function = entry.get("function")
            if type(function) is int:
                log.functions[number] = function, entry.get("commutes") is True
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
