"""Writes the trace of one rank: collects rows in memory and writes them in blocks at step boundaries.

A region costs two clock reads and one append of packed bytes (0.2 us). Other records stay in memory too: `at`, `flush`,
`close` and long `series` write to HDF5, full blocks when there are enough rows, and all rows every five seconds.
"""

from __future__ import annotations

import json
import math
import os
import struct
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kernels.sizes import COLUMNS, dtype_name, sample_of, sizes
from miniapps.system import place
from miniapps.system.interrupts import held
from miniapps.trace.chain import Rows
from miniapps.trace.records import DECISION, MARGIN
from miniapps.trace.schema import COMPUTE, KINDS, TABLES, TraceError, fingerprint, fingerprint_rows
from miniapps.trace.storage import Columns, Storage

LEVELS = ("regions", "off")
BLOCK = 16384  # events in memory, 0.66 MB, before full chunks are written
INTERVAL_NS = 5_000_000_000  # all rows are written this often, so that a killed run loses little

WHERE = ("repeat", "step", "name", "after")

_EVENT = struct.Struct("=qqqqq")
_TWO_WORDS = struct.Struct(">QQ")


class Tracer:
    """The trace file of one rank.

    `path`: a new file; `attributes`: of the root group (docs/reference/trace.md), those of JSON as Python objects;
    `size`: of the communicator; `level`: "regions", or "off", which records all values, fingerprints, orders and
    choices but no events and no usage, so that the cost of tracing can be measured on the same bits; `directory`: of
    the run, watched with the file; `hashed`: kind of fingerprints, one of `schema.FINGERPRINTS`.

    `name` is an integer from `tracer.name(...)` in `event`, where speed matters, and an integer or a string elsewhere.
    Raises TraceError if the file cannot be written; the tracer then writes no more. `flush` and `close` also raise it
    if the file or the directory was removed or moved; they still write all rows to the moved file.
    """

    clock = staticmethod(time.perf_counter_ns)

    def __init__(
        self,
        path: str | os.PathLike,
        attributes: Mapping[str, Any],
        *,
        size: int = 1,
        level: str = "regions",
        directory: place.Place | None = None,
        hashed: str = "xxh3",
    ):
        if level not in LEVELS:
            raise ValueError(f"trace level {level!r} is unknown; the levels are {', '.join(LEVELS)}")
        self.path = Path(path)
        self.level, self.hashed = level, hashed
        self.rank = int(attributes.get("rank", 0))
        self.size = size
        self.repeat = self.step = 0
        self._names: dict[str, int] = {}
        self._kinds: dict[int, str] = {}  # of regions, by number
        self._pending = {table: _pending(table) for table in TABLES if table != "events"}
        self._rows = bytearray()
        self._marks = [(0, 0, 0)]  # (row of the events, repeat, step) at each change of repeat or step
        self._flush_ns = 0
        self._period = _period()
        self.event: Callable[..., None] = _no_event if level == "off" else _recorder(self._rows)
        self.ns_per_event = cost_of_event(self.event, self.clock)
        self._rows.clear()
        self._events = 0
        # Descriptions of regions and reductions: attributes that are written with the rows.
        self._descriptions: dict[str, dict[str, Any]] = {
            key: {} for key in ("partners", "messages", "reductions", "regions")
        }
        self._written: dict[str, str] = {}
        self.rows: Rows | None = None  # the chain of the run, which gets all rows
        try:
            with held():
                self._storage: Storage | None = Storage(self.path, attributes, size)
                self._identity = place.of(os.stat(self.path))
        except OSError as error:
            raise self._error("created", error) from error
        self._directory = directory

    def name(self, name: str, kind: str = COMPUTE) -> int:
        """Returns the integer for the region `name` of this kind (`schema.KINDS`), to pass to `event`. Raises
        ValueError for an unknown kind, and for a region named with two kinds."""
        if kind not in KINDS:
            raise ValueError(f"region {name!r}: unknown kind {kind!r}; the kinds are {', '.join(KINDS)}")
        known = self._descriptions["regions"].setdefault(name, kind)
        if known != kind:
            raise ValueError(
                f"region {name!r} has two kinds, {known} and {kind}: give one of them another name"
            )
        number = self._number(name)
        self._kinds[number] = kind
        return number

    def interval(self, name: int, start: int, end: int, nbytes: int = 0, flops: int = 0) -> None:
        """Record the region `name` from `start` to `end` of `clock`, as `event` does up to now."""
        if self.level != "off":
            self._rows.extend(_EVENT.pack(start, end, name, nbytes, flops))

    def at(self, repeat: int, step: int) -> None:
        """Begin `step` of `repeat`, to which later rows belong; write the rows so far if they are many or old."""
        self.repeat, self.step = repeat, step
        if _period() != self._period:
            self.flush()
        elif len(self._rows) >= BLOCK * _EVENT.size:
            self._tell()
            self._write(tails=True)
        rows = len(self._rows) // _EVENT.size
        if self._marks[-1][0] == rows:
            self._marks.pop()
        self._marks.append((rows, repeat, step))

    def value(self, name: int | str, value: float, block: int = -1) -> None:
        """Record one float64; `block`: global index of its block, -1 for the whole."""
        self._add("values", name, block=[int(block)], value=[float(value)])

    def values(self, name: int | str, blocks: np.ndarray, values: np.ndarray) -> None:
        """Record float64 `values` (n,) of the global `blocks` (n,)."""
        blocks, values = np.asarray(blocks, np.int32), np.asarray(values, np.float64)
        if blocks.ndim != 1 or blocks.shape != values.shape:
            raise ValueError(f"one value per block is needed, got {values.shape} for blocks {blocks.shape}")
        self._add("values", name, block=blocks.tolist(), value=values.tolist())

    def series(self, name: int | str, first: int, values: np.ndarray, block: int = -1) -> None:
        """Record float64 `values` (n,), one for each of the steps first, first + 1, ... of this repeat. Writes rows
        in between, so that long series take little memory."""
        number = self._number(name) if isinstance(name, str) else name
        rows, pending = np.asarray(values, np.float64).tolist(), self._pending["values"]
        for start in range(0, len(rows), BLOCK):
            part = rows[start : start + BLOCK]
            pending["block"] += [int(block)] * len(part)
            pending["value"] += part
            begin = first + start
            after = self.ended()
            pending["where"] += [(1, self.repeat, begin + i, number, after) for i in range(len(part))]
            if len(pending["value"]) >= BLOCK:
                self._write(tails=False)

    def decision(self, name: str, outcome: float, margin: float = math.nan, block: int = -1) -> None:
        """Record one decision, as `decisions` does."""
        self.value(DECISION + name, outcome, block)
        if not math.isnan(margin):
            self.value(MARGIN + name, margin, block)

    def decisions(self, name: str, blocks: np.ndarray, outcomes: np.ndarray, margins: np.ndarray) -> None:
        """Record discrete outcomes (n,) as numbers, such as the class of a sample, the number of iterations, or 1 for
        yes and 0 for no, of the global `blocks` (n,), -1 for the whole. `margins` (n,): how far each was from another
        outcome, at least 0, relative to the quantities that were compared; NaN: not known."""
        known = ~np.isnan(margins)
        self.values(DECISION + name, blocks, outcomes)
        self.values(MARGIN + name, blocks[known], margins[known])

    def digest(self, array: np.ndarray) -> bytes:
        """The fingerprint of `array` in this trace's kind, 16 bytes, see `schema.fingerprint`."""
        return fingerprint(array, self.hashed)

    def fingerprint(self, name: int | str, block: int, digest: bytes) -> None:
        """Record 16 bytes for a global block without sizes, such as a hash of hashes. Use `array` for arrays; one name
        takes only one of the two."""
        hi, lo = _TWO_WORDS.unpack(digest)
        self._add("fingerprints", name, block=[int(block)], hi=[hi], lo=[lo])

    def array(self, name: int | str, block: int, array: np.ndarray, sample: int = 1) -> None:
        """Record the fingerprint and the sizes of the array of one global block."""
        self.fingerprints(name, [block], np.asarray(array)[np.newaxis], sample)

    def fingerprints(
        self, name: int | str, blocks: Iterable[int], arrays: np.ndarray, sample: int = 1
    ) -> None:
        """Record the fingerprints and the sizes of `arrays` (n, ...), one for each of the n global `blocks`. `sample`
        above 1: sizes of one block of 64 numbers among so many (`kernels.sizes`)."""
        blocks, arrays = [int(block) for block in blocks], np.asarray(arrays)
        if len(arrays) != len(blocks):
            raise ValueError(f"one array per block is needed, got {len(arrays)} for {len(blocks)} blocks")
        words = [_TWO_WORDS.unpack(digest) for digest in fingerprint_rows(arrays, self.hashed)]
        self._add("fingerprints", name, block=blocks, hi=[hi for hi, _ in words], lo=[lo for _, lo in words])
        count, rows = sizes(arrays, sample) or (0, np.zeros((len(blocks), len(COLUMNS))))
        own = dict(zip(COLUMNS, rows.T.tolist(), strict=True))
        dtype = [self._number(dtype_name(arrays.dtype))] * len(blocks)
        own |= {
            "dtype": dtype,
            "count": [count] * len(blocks),
            "sample": [sample_of(count, sample)] * len(blocks),
        }
        self._add("sizes", name, block=blocks, **own)

    def choice(self, name: int | str, block: int, choice: str, score: float) -> None:
        """Record the decision `name` about a global block or the whole (-1), and its score."""
        self._add("choices", name, block=[int(block)], choice=[self._number(choice)], score=[float(score)])

    def usage(self, name: int | str, step: int, value: float) -> None:
        """Record a resource that this process used in a step, such as CPU seconds; nothing at level "off"."""
        if self.level != "off":  # once in every step: without the lists of `_add`
            number = self._number(name) if isinstance(name, str) else name
            pending = self._pending["usage"]
            pending["value"].append(float(value))
            pending["where"].append((1, self.repeat, step, number, 0))

    def order(self, name: int | str, orders: Iterable[np.ndarray]) -> None:
        """Record the orders, each uint16 (size,), in which the reducer `name` added contributions."""
        if rows := [np.asarray(order, np.uint16) for order in orders]:
            self._add("order", name, ranks=rows)

    def partners(self, name: str, ranks: Iterable[int]) -> None:
        """State the `ranks` of the run with which the region `name` exchanges data. Needed for regions that wait for
        only some ranks."""
        known = self._descriptions["partners"].get(name, ())
        self._descriptions["partners"][name] = sorted({*known, *map(int, ranks)})

    def messages(
        self, name: str, sent: Mapping[int, int], between: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """State the messages of the region `name`: bytes by rank of the run; one call per plan. `between`: bytes
        between neighbouring blocks, for any owners (`head.Between`).

        Returns the description in the trace. The sender must count up its `calls`, which are written with the rows.
        """
        planned: dict[str, Any] = {"ranks": list(map(int, sent)), "bytes": list(map(int, sent.values()))}
        if between is not None:
            planned["between"] = dict(between)
        known = self._descriptions["messages"].setdefault(name, [])
        for other in known:  # from an earlier repeat, or another plan
            if planned.items() <= other.items():
                return other
        known.append(planned | {"calls": 0})
        return known[-1]

    def reduction(self, name: str, facts: dict[str, Any]) -> None:
        """Describe the reduction `name` (docs/reference/trace.md). `facts` is read again whenever rows are written, so
        the caller may update its number of calls."""
        self._descriptions["reductions"][name] = facts

    def kind(self, number: int) -> str:
        """The kind of the region for which `name` returned `number`."""
        return self._kinds[number]

    def spans(self, kinds: Collection[str]) -> np.ndarray:
        """(begin, end) of the regions of these `kinds` in the current step so far: int64 (regions, 2), nanoseconds,
        ordered by end. Leaves out regions that a `flush` has written since the step began."""
        regions = self._descriptions["regions"]
        wanted = [number for name, number in self._names.items() if regions.get(name) in kinds]
        here = bytes(self._rows[self._marks[-1][0] * _EVENT.size :])
        rows = np.frombuffer(here, np.int64).reshape(-1, 5)
        return rows[np.isin(rows[:, 2], wanted), :2]

    def attributes(self, **attributes: Any) -> None:
        """Set attributes of the root group after creation, such as the clock drift known at the end."""
        self._guarded("written", lambda storage: storage.set_attributes(attributes))

    def hand_over(self) -> None:
        """Hand all rows to the file, which writes only full chunks."""
        self._write(tails=False)

    def flush(self) -> None:
        """Write and commit all rows so far. Raises TraceError if the file was moved or removed."""
        self._tell()
        self._write(tails=True)
        self._period = _period()
        if self._storage is not None and (trouble := self._trouble()):
            raise TraceError(trouble)

    def close(self, complete: bool = True) -> str:
        """Write the remaining rows, close the file and seal it. `complete`: whether the run ended regularly; a moved
        file counts as incomplete.

        Returns the seal, a hash of the file in hex; empty if the file was already abandoned."""
        self._tell()
        self._write(tails=False)
        trouble = "" if self._storage is None else self._trouble()
        seals = [""]

        def finish(storage: Storage) -> None:
            own = {"events": self._events, "ns_per_event": self.ns_per_event, "flush_ns": self._flush_ns}
            seals.append(storage.finish(complete and not trouble, own | {"dropped": 0}))

        self._guarded("closed", finish)
        self._storage = None
        if trouble and complete:
            raise TraceError(trouble)
        return seals[-1]

    def where(self) -> Path | None:
        """The current path of the file; None if it was removed."""
        return self.path if place.leads_to(self.path, self._identity) else place.whereabouts(self._identity)

    def ended(self) -> int:
        """The number of events recorded so far; a row states it as `after`: these events had ended before the row."""
        return self._events + len(self._rows) // _EVENT.size

    def __enter__(self) -> Tracer:
        return self

    def __exit__(self, kind, error, traceback) -> None:
        self.close(complete=kind is None)

    def _add(self, table: str, name: int | str, **columns: list) -> None:
        pending = self._pending[table]
        number = self._number(name) if isinstance(name, str) else name
        for column, rows in columns.items():
            pending[column] += rows
        pending["where"].append((len(rows), self.repeat, self.step, number, self.ended()))

    def _number(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))

    def _tell(self) -> None:
        """Write changed descriptions of regions and reductions, one attribute at a time, so that a kill leaves the
        attributes before or after the change."""
        for key, entries in self._descriptions.items():
            if (text := json.dumps(entries)) != self._written.get(key, "{}"):
                self.attributes(**{key: entries})
                self._written[key] = text

    def _write(self, tails: bool) -> None:
        """Hand all rows to the file, which writes full chunks, and with `tails` also the rest."""

        def write(storage: Storage) -> None:
            started = self.clock()
            tables = {"events": self._take_events()} if self._rows else {}
            for table, pending in self._pending.items():
                if pending["where"]:
                    tables[table] = _take(table, pending)
            names = list(self._names)
            if self.rows is not None:
                for table, columns in tables.items():
                    self.rows.add(table, columns, names)
            storage.append(tables, names)
            if tails:
                storage.write_tails((self.repeat, self.step))
            self._flush_ns += self.clock() - started

        self._guarded("written", write)

    def _take_events(self) -> Columns:
        """Take the waiting rows of the events, as columns."""
        rows = np.frombuffer(bytes(self._rows), np.int64).reshape(-1, 5)
        self._rows.clear()
        first, *where = (np.array(column) for column in zip(*self._marks, strict=True))
        lengths = np.diff(first, append=len(rows))
        repeat, step = (np.repeat(column.astype(np.int32), lengths) for column in where)
        self._marks = [(0, self.repeat, self.step)]
        self._events += len(rows)
        start, end, name, nbytes, flops = (np.ascontiguousarray(column) for column in rows.T)
        return {"start": start, "end": end, "name": name, "repeat": repeat, "step": step, "bytes": nbytes,
                "flops": flops}  # fmt: skip

    def _guarded(self, verb: str, action: Callable[[Storage], None]) -> None:
        """Apply `action` to the file, unless it was abandoned. An error abandons the file, readable up to its last
        commit. Signals wait, because HDF5 does not survive an exception from a handler."""
        with held():
            storage, self._storage = self._storage, None
            if storage is None:
                return
            try:
                action(storage)
            except BaseException as error:
                storage.abandon()
                if isinstance(error, OSError):
                    raise self._error(verb, error) from error
                raise
            self._storage = storage

    def _trouble(self) -> str:
        """A sentence about a moved or removed directory or file; empty while both are in their places."""
        trouble = self._directory.trouble() if self._directory else ""
        if not trouble and not place.leads_to(self.path, self._identity):
            fate = place.fate(self.path, self._identity)
            trouble = f"the trace of rank {self.rank}, {self.path}, {fate}; {place.ADVICE}"
        return trouble

    def _error(self, verb: str, error: OSError) -> TraceError:
        advice = "make room on that disk, choose another (--out DIR), or record less (--trace off)"
        if isinstance(error, FileExistsError):
            advice = "another run writes there: choose a directory that none uses (--out DIR)"
        reason = error.strerror or error
        return TraceError(f"the trace of rank {self.rank}, {self.path}, cannot be {verb}: {reason}; {advice}")


def _period() -> int:
    """Number of the current interval since the epoch. All ranks on all nodes write at the same step, so that the others
    wait once and not for one rank after another."""
    return time.time_ns() // INTERVAL_NS


def _pending(table: str) -> dict[str, list]:
    """Rows of a table that wait to be written: "where" holds (rows, *WHERE), the rest columns."""
    return {"where": [], **{column: [] for column in TABLES[table] if column not in WHERE}}


def _take(table: str, pending: dict[str, list]) -> dict[str, np.ndarray]:
    """Take the waiting rows, as columns."""
    lengths, *where = (np.array(column) for column in zip(*pending["where"], strict=True))
    shared = zip(WHERE, (np.repeat(column, lengths) for column in where), strict=True)
    columns = {column: rows for column, rows in shared if column in TABLES[table]}
    for column in pending.keys() - {"where"}:
        columns[column] = np.array(pending[column], TABLES[table][column])
    for rows in pending.values():
        rows.clear()
    return columns


def _no_event(name: int, start: int, nbytes: int = 0, flops: int = 0) -> None:
    """The null event of level "off"."""


def _recorder(rows: bytearray) -> Callable[..., None]:
    """`event` as a closure: local names are the fastest Python has."""
    extend, pack, clock = rows.extend, _EVENT.pack, time.perf_counter_ns

    def event(name: int, start: int, nbytes: int = 0, flops: int = 0) -> None:
        """Close the region `name`, opened at `start` = `tracer.clock()`; `nbytes` and `flops`: bytes and floating-point
        operations in it, 0 if unknown."""
        extend(pack(start, clock(), name, nbytes, flops))

    return event


def cost_of_event(event: Callable, clock: Callable, count: int = 500) -> float:
    """Nanoseconds per region, for two clock reads and the event: the best of a few short runs."""
    best = float("inf")
    for _ in range(5):
        begin = clock()
        for _ in range(count):
            start = clock()
            event(0, start)
        best = min(best, (clock() - begin) / count)
    return best
