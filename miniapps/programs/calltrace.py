"""Write the raw log of one rank as a trace: inputs and outputs of its MPI calls, their times and their places.

| record | content |
|---|---|
| `added:CALL by rank R of P` | the contribution of this rank to a reduction |
| `total:CALL` | the total on all ranks, recorded by rank 0; `... by rank R of P` if each rank gets its own |
| `sent:CALL`, `received:CALL` | inputs and outputs of other calls; the block is the rank |
| `global:CALL, COUNT TYPE` | floating-point numbers that all ranks have after a Bcast or Allgather(v), or that a root |
| | gathers or scatters, recorded once; equal counts on other numbers of ranks mean the same numbers |
| `source:CALL` (value) | the sender of a message received from any source, -1 for none; the block is the rank |
| `written:CALL`, `read:CALL` | data of calls that write and read files; the block is the rank |
| `origin:CALL`, `fetched:CALL` | data of one-sided calls; the block is the rank that made the call |
| `target:CALL`, `displacement:CALL` (values) | the rank that it accesses, and the place in its window |
| `window:CALL` | memory of a window at the end of an exposure; the block is the rank |
| `file:CALL` (value) | the number of the file, of the attribute `files`; the block is the rank |
| `offset:CALL` (value) | the first byte in the file, if it is known; `view offset:` if the view scatters the others |

CALL is like `MPI_Allreduce at dot (cg.c:57) from solve (cg.c:80)`. A step is the number of collective calls on all
ranks before the call, so equal steps of two runs are the same place in the program.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shlex
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kernels.guarantees import meets
from miniapps.programs.command import arguments_of, name_of
from miniapps.programs.coverage import Unreached, promised, unreached
from miniapps.programs.functions import ACCUMULATES
from miniapps.programs.numbering import COLLECTIVES, steps
from miniapps.programs.rawlog import (
    BASICS,
    FAILED,
    FIRST_ACCESS,
    FIRST_EXPOSURE,
    FIRST_WRITE,
    INTER,
    KINDS,
    REPLACED,
    SCATTERED,
    SIZES,
    WILDCARD,
    RawLog,
)
from miniapps.system import environment
from miniapps.system.kinds import recorded
from miniapps.trace.commits import Hasher, table_digest
from miniapps.trace.head import problem_hash
from miniapps.trace.reader import RankTrace, read
from miniapps.trace.records import (
    ADDED,
    ARGUMENTS,
    DISPLACEMENT,
    FETCHED,
    GLOBAL,
    NO_NUMBERS,
    OF_FILE,
    OF_WINDOWS,
    OFFSET,
    ORIGIN,
    READ,
    RECEIVED,
    SENT,
    SOURCE,
    TARGET,
    TOTAL,
    VIEW_OFFSET,
    WINDOW,
    WRITTEN,
)
from miniapps.trace.schema import COLLECTIVE, EXCHANGE, FILE, SCHEMA, TABLES, TraceError, rank_file
from miniapps.trace.storage import Columns, Storage
from miniapps.untrusted.regular import Refused, open_regular
from miniapps.untrusted.text import printable

# Reductions, and the names of their collectives in traces.
REDUCTIONS = {
    "MPI_Allreduce": "allreduce",
    "MPI_Reduce": "reduce",
    "MPI_Reduce_scatter": "reduce-scatter",
    "MPI_Reduce_scatter_block": "reduce-scatter",
    "MPI_Scan": "scan",
    "MPI_Exscan": "exscan",
}
# Names of types in traces; other types keep their MPI name.
DTYPES = {
    "MPI_DOUBLE": "float64", "MPI_DOUBLE_PRECISION": "float64", "MPI_REAL8": "float64",
    "MPI_FLOAT": "float32", "MPI_REAL": "float32", "MPI_REAL4": "float32",
    "MPI_C_DOUBLE_COMPLEX": "complex128", "MPI_DOUBLE_COMPLEX": "complex128",
    "MPI_C_FLOAT_COMPLEX": "complex64", "MPI_COMPLEX": "complex64",
    "MPI_INT": "int32", "MPI_INTEGER": "int32", "MPI_INT32_T": "int32", "MPI_INT64_T": "int64",
    "MPI_UINT64_T": "uint64",
}  # fmt: skip
SHARED = ("MPI_Allreduce", "MPI_Reduce")  # reductions with one total
LAST_STEP = 2**31 - 1
# Calls after which ("out") or before which ("in") all ranks, or the root, have an array. If its length does not depend
# on the number of ranks, neither do its numbers.
HELD = {"MPI_Bcast": "out", "MPI_Allgather": "out", "MPI_Allgatherv": "out", "MPI_Gather": "out", "MPI_Gatherv": "out",
        "MPI_Scatter": "in", "MPI_Scatterv": "in"}  # fmt: skip
ROOTED = ("MPI_Gather", "MPI_Gatherv", "MPI_Scatter", "MPI_Scatterv")
NEIGHBOURHOOD = tuple(number for number, name in enumerate(KINDS) if name.startswith("MPI_Neighbor_"))
FLOATS = tuple(
    number for number, name in enumerate(BASICS) if not name.startswith(("int", "uint", "bool")) and name
)
DRAFT = ".draft"
PIECE = 2**16  # records at once
PIECE_BYTES = 2**24
WHERE = ("repeat", "step", "name", "block", "after")
# Prefixes of inputs and outputs, by the first kind of call.
SIDES = ((FIRST_EXPOSURE, (ORIGIN, WINDOW)), (FIRST_ACCESS, (ORIGIN, FETCHED)), (FIRST_WRITE, (WRITTEN, READ)),
         (0, (SENT, RECEIVED)))  # fmt: skip
NOTHING = bytes(16)  # the digest of a call without input or output
# (ordering, accumulation, guarantee) of sums of fpna's library (kernels/library), which merges states or adds gathered
# vectors.
PROMISED = {
    "run": ("tree over ranks", "working", "run"),
    "layout": ("any order", "binned", "layout"),
    "exact": ("any order", "exact", "exact"),
}
# (ordering, accumulation, guarantee) of the sums of preload/sums.hpp. Contributions are partial sums of ranks, so
# `layout` guarantees no more than `run`.
SUMS = {
    "none": ("library", "working", "none"),
    "run": ("tree over ranks", "working", "run"),
    "layout": ("tree over ranks", "working", "run"),
    "exact": ("tree over ranks", "exact", "exact"),
}


def write(log: RawLog, out: Path) -> Unreached:
    """Write the trace OUT/rank-RRRRR.h5 of a raw log under another name, read it back, compare, and rename it.

    Returns the sums that the guarantee did not reach. Raises OSError, and Refused if another trace has this name.
    """
    target = out / rank_file(log.rank)
    trace = LogTrace(log)
    draft = target.with_suffix(DRAFT)
    draft.unlink(missing_ok=True)  # from a killed process
    try:
        given = fill(draft, trace)
        back = read(draft)
        if given != (_digests(back), back.names, back.complete):
            raise OSError(errno.EIO, "the file read back differs from the data written")
        if os.path.lexists(target) and not _is_same(target, back):
            raise Refused(
                f"{printable(str(target))}: is in the way of the trace of rank {log.rank}, and differs; move it away"
            )
        draft.rename(target)
    except TraceError as error:
        raise OSError(errno.EIO, str(error)) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
    return trace.unreached


def fill(draft: Path, trace: LogTrace) -> tuple[dict[str, bytes], list[str], bool]:
    """Write the trace into a new file; returns (hashes of the tables, names, whether it is complete) for the check."""
    log, rows = trace.log, {table: Hasher(table) for table in TABLES}
    storage = Storage(draft, trace.attributes(), log.size)
    for begin in range(0, len(log.records), PIECE):
        tables = trace.tables(begin, log.records[begin : begin + PIECE])
        for table, columns in tables.items():
            rows[table].add({name: _as_stored(columns[name], dtype) for name, dtype in TABLES[table].items()})
        storage.append(tables, list(trace.numbers))
    storage.write_tails()
    storage.finish(
        bool(log.ended), {"events": len(log.records), "ns_per_event": 0.0, "flush_ns": 0, "dropped": 0}
    )
    with open(draft, "rb") as file:
        os.fsync(file.fileno())
    return {table: hasher.digest() for table, hasher in rows.items()}, list(trace.numbers), bool(log.ended)


def _as_stored(rows: np.ndarray, dtype: str) -> np.ndarray:
    return rows.astype(np.dtype(dtype).newbyteorder("<"))


def _digests(trace: RankTrace) -> dict[str, bytes]:
    return {
        table: table_digest(
            table, {name: _as_stored(rows, TABLES[table][name]) for name, rows in columns.items()}
        )
        for table, columns in trace.tables.items()
    }


def _is_same(path: Path, trace: RankTrace) -> bool:
    """Whether the file `path` is the same trace."""
    try:
        there = read(path)
    except TraceError:
        return False
    mine = (trace.attributes["run_id"], trace.names, trace.complete, _digests(trace))
    return mine == (there.attributes.get("run_id"), there.names, there.complete, _digests(there))


class LogTrace:
    """The rows of one trace, in pieces."""

    def __init__(self, log: RawLog):
        self.log = log
        self.numbers: dict[str, int] = {}  # of all names so far
        self.steps = np.minimum(steps(log), LAST_STEP).astype(np.int32)
        # Groups of calls with the same kind, form, site, communicator, operation and type: `first` record, group of
        # each record (`which`), and `counts`.
        fields = ("kind", "flags", "site", "comm", "op", "type")
        keys = np.empty(len(log.records), [(field, log.records.dtype[field]) for field in fields])
        for field in keys.dtype.names or ():
            keys[field] = log.records[field]
        _, first, self.which, self.counts = np.unique(
            keys, return_index=True, return_inverse=True, return_counts=True
        )
        self.first, where = log.records[first], log.places.words()
        log.name_operations(where)
        self.calls = [
            f"{log.label(row)} at {where.get(int(row['site']), 'an unknown place')}{self._on(int(row['comm']))}"
            for row in self.first
        ]
        self.unreached = unreached(log, self.first, self.counts, self.calls)

    def _on(self, comm: int) -> str:
        """The end of the name of a call on another communicator than MPI_COMM_WORLD; else empty."""
        known = self.log.communicators.get(comm)
        return f" on {known.name}" if known and known.name else ""

    def number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))

    def tables(self, begin: int, rows: np.ndarray) -> dict[str, Columns]:
        """The tables of the records `rows`, with `begin` records before them."""
        names = [self.calls[i] for i in self.which[begin : begin + len(rows)]]
        events = {
            "start": rows["begin"],
            "end": np.where(rows["end"] > 0, rows["end"], rows["begin"]),
            "name": np.array([self.number(name) for name in names], np.int32),
            "repeat": np.zeros(len(rows), np.int32),
            "step": self.steps[begin : begin + len(rows)],
            "bytes": rows["bytes"],
            "flops": np.zeros(len(rows), np.int64),
        }
        fingerprints: dict[str, list[Any]] = defaultdict(list)
        values: dict[str, list[Any]] = defaultdict(list)
        sources: list[tuple[int, str]] = []  # (record, side) of each fingerprint
        for after, (row, call) in enumerate(zip(rows, names, strict=True), begin + 1):
            for name, value in self._places(row, call):
                self._add(values, after, name, self.log.rank)
                values["value"].append(float(value))
            for name, block, side in self._records(row, call):
                self._add(fingerprints, after, name, block)
                hi, lo = np.frombuffer(row[side].tobytes(), ">u8")
                fingerprints["hi"].append(int(hi))
                fingerprints["lo"].append(int(lo))
                sources.append((after - begin - 1, side))
        tables = {"events": events}
        for table, columns in (("fingerprints", fingerprints), ("values", values)):
            if columns:
                tables[table] = {
                    name: np.array(column, np.uint64 if name in ("hi", "lo") else None)
                    for name, column in columns.items()
                }
        if sources:
            own = {column: tables["fingerprints"][column] for column in WHERE}
            tables["sizes"] = own | self._sizes(rows, sources)
        return tables

    def _sizes(self, rows: np.ndarray, sources: list[tuple[int, str]]) -> Columns:
        """The sizes of the data of `sources` (record, side): columns dtype, count, sample and the columns of
        kernels.sizes."""
        records, sides = zip(*sources, strict=True)
        rows, given = rows[list(records)], np.array(sides) == "in"
        basic = np.where(given, rows["in_basic"], rows["out_basic"])
        dtypes = np.empty(len(rows), np.int32)
        for number in np.unique(basic[basic > 0]).tolist():
            dtypes[basic == number] = self.number(BASICS[number])
        for number in np.unique(rows["type"][basic == 0]).tolist():  # no numbers: MPI's name of the type
            here = (basic == 0) & (rows["type"] == number)
            dtypes[here] = self.number(self.log.types.get(number, "unknown"))
        of_both = rows["in_sizes"], rows["out_sizes"]
        sizes = {column: np.where(given, *(side[column] for side in of_both)) for column in SIZES.names or ()}
        return {"dtype": dtypes, "sample": np.ones(len(rows), np.int32), **sizes}

    def _add(self, columns: dict[str, list[Any]], after: int, name: str, block: int) -> None:
        columns["repeat"].append(0)
        columns["step"].append(int(self.steps[after - 1]))
        columns["name"].append(self.number(name))
        columns["block"].append(block)
        columns["after"].append(after)

    def _places(self, row: np.void, call: str) -> Iterator[tuple[str, int]]:
        """(name, value) of the sender of a message from any source, and of the place of data in a file."""
        if row["flags"] & WILDCARD:
            yield f"{SOURCE}{call}", max(-1, int(row["peer"]))
        if row["flags"] & FAILED or row["kind"] >= FIRST_EXPOSURE:
            return
        if row["kind"] >= FIRST_ACCESS:
            yield f"{TARGET}{call}", int(row["peer"])
            yield f"{DISPLACEMENT}{call}", int(row["at"])
        elif row["kind"] >= FIRST_WRITE:
            yield f"{OF_FILE}{call}", int(row["peer"])
            if row["at"] >= 0:
                yield f"{VIEW_OFFSET if row['flags'] & SCATTERED else OFFSET}{call}", int(row["at"])

    def _records(self, row: np.void, call: str) -> Iterator[tuple[str, int, str]]:
        """(name, block, side of the record) for each input or output of a call that this rank records."""
        log, kind = self.log, KINDS[row["kind"]]
        whole = int(row["comm_size"]) == log.size and not row["flags"] & INTER
        own = f"{call} by rank {log.rank} of {log.size}"
        given, got = (row[side].tobytes() != NOTHING for side in ("in", "out"))
        if kind in REDUCTIONS:
            if given:
                yield f"{ADDED}{own}", -1, "in"
            if got and not (kind in SHARED and whole):
                yield f"{TOTAL}{own}", -1, "out"
            elif got and (log.rank == 0 or kind == "MPI_Reduce"):
                yield f"{TOTAL}{call}", -1, "out"
            return
        to, back = next(sides for first, sides in SIDES if row["kind"] >= first)
        if given:
            yield f"{to}{call}", log.rank, "in"
        if got:
            yield f"{back}{call}", log.rank, "out"
        side = HELD.get(kind, "")
        shared = got and (kind in ROOTED or log.rank == 0) if side == "out" else given
        if whole and side and shared and row[f"{side}_basic"] in FLOATS:
            held = f"{int(row[f'{side}_sizes']['count'])} {BASICS[row[f'{side}_basic']]}"
            yield f"{GLOBAL}{call}, {held}", -1, side

    def attributes(self) -> dict[str, Any]:
        """The attributes of the trace."""
        log, app = self.log, name_of(self.log.command)
        problem = {ARGUMENTS: arguments_of(log.command, log.same_but)}
        options: dict[str, Any] = {
            "program.sums": {"effect": "reduction"},
            "program.replay": {"effect": "replay"},
            "program.disturb": {"effect": "fault"},
            "recording.of_ranks": {
                "records": [
                    f"fingerprints:{prefix}*"
                    for prefix in (ADDED, f"{TOTAL}* by rank ", SENT, RECEIVED, WRITTEN, READ, *OF_WINDOWS)
                ]
                + [f"values:{prefix}*" for prefix in NO_NUMBERS],
                "of_ranks": True,
            },
        }
        settings = {
            "program": {
                "arguments": problem[ARGUMENTS],
                "sums": log.guarantee,
                "replay": log.replay or None,
                "disturb": log.disturb,
                "point_to_point": log.point_to_point,
            },
            "recording": {"of_ranks": True},
        }
        return {
            "schema": SCHEMA,
            "app": app,
            "rank": log.rank,
            "config": settings,
            "problem": problem_hash(app, problem),
            "problem_options": problem,
            "method": {
                "program.sums": log.guarantee,
                "program.replay": log.replay or None,
                "program.disturb": log.disturb,
            },
            "options": options,
            "guarantee": "none",  # of the program's bits; each reduction states its own
            "seed": 0,
            "repeats": 1,
            "run_id": log.run_id,
            "allocation_id": environment.allocation_id(),
            "started": log.started,
            "environment": environment.own(0, "cpu")
            | recorded(log.kinds)
            | {
                "command": shlex.join(log.command),
                "mpi": environment.library_name(log.library),
                "sources": digest_of(log.command[0]) if log.here else "",
            },
            "clock_offset_ns": float(log.offset),
            "clock_drift": 0.0,
            "regions": {
                call: FILE
                if FIRST_WRITE <= row["kind"] < FIRST_ACCESS
                else COLLECTIVE
                if row["kind"] in COLLECTIVES and row["kind"] not in NEIGHBOURHOOD
                else EXCHANGE
                for row, call in zip(self.first, self.calls, strict=True)
            },
            "reductions": self._reductions(),
            "files": {str(number): name for number, name in log.files.items()},
            **self._neighbours(),
            "unseen": {name: count for name, count in log.unseen.items() if name != ACCUMULATES},
            "unreached": self.unreached,
        }

    def _neighbours(self) -> dict[str, dict[str, Any]]:
        """The attributes `neighbours`, of neighbourhood collectives whose calls had the same ones, and `partners`."""
        here = np.isin(self.log.records["kind"], NEIGHBOURHOOD)
        pairs = np.unique(np.stack([self.which[here], self.log.records["peer"][here]], 1), axis=0)
        stated: dict[str, dict[str, Any]] = {"neighbours": {}, "partners": {}}
        for group in np.unique(pairs[:, 0]).tolist():
            every = [self.log.neighbours.get(int(number)) for number in pairs[pairs[:, 0] == group, 1]]
            known = [each for each in every if each is not None]
            ranks = {rank for each in known for rank in (*each.sources, *each.targets) if rank >= 0}
            call = self.calls[group]
            stated["partners"][call] = sorted(ranks | set(stated["partners"].get(call, ())))
            if len(every) == len(known) == 1:
                stated["neighbours"][call] = {"from": list(known[0].sources), "to": list(known[0].targets)}
        return {name: of for name, of in stated.items() if of}

    def _reductions(self) -> dict[str, dict[str, Any]]:
        """The attributes of each reduction; if the MPI library carries out some calls of a line, with its guarantee."""
        facts: dict[str, dict[str, Any]] = {}
        least_of = np.full(len(self.first), self.log.size, np.int64)
        np.minimum.at(least_of, self.which, self.log.records["comm_size"].astype(np.int64))
        each = zip(self.first, self.calls, self.counts.tolist(), least_of.tolist(), strict=True)
        for row, call, count, least in each:
            promise = promised(row)
            collective = REDUCTIONS.get(KINDS[row["kind"]])
            if promise and collective is None:  # it moves the contributions of the sum
                collective = KINDS[row["kind"]].removeprefix("MPI_").lower()
            if collective is None:
                continue
            dtype = self.log.types.get(int(row["type"]), "")
            ordering, accumulation, level = (
                PROMISED[promise]
                if promise
                else SUMS[self.log.guarantee if row["flags"] & REPLACED else "none"]
            )
            own = {
                "operation": "sum" if promise else self.log.operations.get(int(row["op"]), ""),
                "dtype": "" if promise else DTYPES.get(dtype, dtype),
            }
            known = facts.get(call)
            if known:  # one line may reduce by several operations and types, over several communicators
                own = {key: word if known[key] == word else "" for key, word in own.items()}
                count, least = count + known["calls"], min(least, known["ranks"])
            if known is None or meets(known["guarantee"], level):
                facts[call] = {
                    "ordering": ordering, "accumulation": accumulation, "wire": "as is", "collective": collective,
                    "region": call, "decided": "guarantee", "guarantee": level,
                    "shape": [max(0, int(row["count"]))],
                }  # fmt: skip
            facts[call] |= own | {"calls": count, "ranks": least}
        return facts


def digest_of(program: str) -> str:
    """A hash of the program's file, which distinguishes builds; empty if the file cannot be read."""
    try:
        with open_regular(shutil.which(program) or program, links=True) as file:
            digest = hashlib.blake2b(digest_size=8)
            while piece := file.read(PIECE_BYTES):
                digest.update(piece)
            return digest.hexdigest()
    except (OSError, Refused):
        return ""
