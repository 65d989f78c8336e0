"""Writes the trace of one rank: rows are collected in memory and written in blocks at step boundaries.

A region costs two clock reads and one append of packed bytes (0.2 us); HDF5 is touched only from `at`,
`flush` and `close`. The rows of a table are written, then the file is flushed, and only then is `committed`
raised and flushed: whatever kills the process, the rows below `committed` are whole.
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from miniapps.trace.schema import FORMAT, JSON_ATTRIBUTES, SCHEMA, TABLES, TraceError

LEVELS = ("regions", "off")
BLOCK = 16384  # rows that trigger a flush of the events
CHUNK = 4096  # rows per HDF5 chunk: 32 KiB of int64, so that all open chunks fit the cache
INTERVAL_NS = (
    2_000_000_000  # older rows are flushed at the next step boundary, so that a killed run loses little
)

_EVENT = struct.Struct("=qqqq")
_TWO_WORDS = struct.Struct(">QQ")


class Tracer:
    """The trace file of one rank.

    Parameters: `path` of the file, which must not exist; `attributes` of the root group (docs/trace.md; those
    named there as JSON are given as Python objects); `size` of the communicator; `level` "regions", or "off",
    which records no events but all values, fingerprints and orders, so that the cost of tracing can be
    measured on the same bits; `block`: rows of events that trigger a flush.

    `name` is an integer from `tracer.name(...)` in `event`, where speed matters, and an integer or a string
    everywhere else. Raises TraceError when the file cannot be written; the tracer then writes no more.
    """

    clock = staticmethod(time.perf_counter_ns)

    def __init__(
        self,
        path: str | os.PathLike,
        attributes: Mapping[str, Any],
        *,
        size: int = 1,
        level: str = "regions",
        block: int = BLOCK,
    ):
        if level not in LEVELS:
            raise ValueError(f"trace level {level!r} is unknown; the levels are {', '.join(LEVELS)}")
        self.path = Path(path)
        self.level = level
        self.rank = int(attributes.get("rank", 0))
        self.size = size
        self.repeat = self.step = 0
        self._block = block
        self._names: dict[str, int] = {}
        self._names_written = 0
        self._committed = dict.fromkeys(TABLES, 0)
        self._pending: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES if table != "events"}
        self._rows = bytearray()
        self._marks: list[tuple[int, int, int]] = [
            (0, 0, 0)
        ]  # (row, repeat, step) wherever repeat or step changed
        self._flush_ns = 0
        self._last_flush = self.clock()
        self.event: Callable[..., None] = _no_event if level == "off" else _recorder(self._rows)
        self.ns_per_event = _measure(self.event, self.clock)
        self._rows.clear()
        self._file = None
        try:
            self._file = _create(self.path, attributes, size)
        except OSError as error:
            raise self._failed("created", error) from error

    def name(self, name: str) -> int:
        """The integer that stands for `name` in this file; give it to `event`."""
        return self._names.setdefault(name, len(self._names))

    def at(self, repeat: int, step: int) -> None:
        """All that follows belongs to `step` of `repeat`; writes rows to the file when a block is full or
        old."""
        self.repeat, self.step = repeat, step
        if len(self._rows) >= self._block * _EVENT.size or self.clock() - self._last_flush > INTERVAL_NS:
            self.flush()
        self._marks.append((len(self._rows) // _EVENT.size, repeat, step))

    def value(self, name: int | str, value: float, block: int = -1) -> None:
        """Record one float64; `block` is the global index of the block it belongs to, -1 for the whole."""
        self.values(name, np.array([block], np.int32), np.array([value], np.float64))

    def values(self, name: int | str, blocks: np.ndarray, values: np.ndarray) -> None:
        """Record float64 `values` (n,) of the global `blocks` (n,); both are copied."""
        values = np.array(values, np.float64).reshape(-1)
        blocks = np.broadcast_to(np.array(blocks, np.int32).reshape(-1), values.shape)
        self._add("values", name, block=blocks, value=values)

    def fingerprint(self, name: int | str, block: int, digest: bytes) -> None:
        """Record the 16 bytes that `miniapps.trace.fingerprint` made of the array of one global block."""
        hi, lo = _TWO_WORDS.unpack(digest)
        self._add(
            "fingerprints",
            name,
            block=np.array([block], np.int32),
            hi=np.array([hi], np.uint64),
            lo=np.array([lo], np.uint64),
        )

    def order(self, name: int | str, orders: Iterable[np.ndarray]) -> None:
        """Record the orders, each uint16 (size,), in which a reducer called `name` added its
        contributions."""
        orders = list(orders)
        if orders:
            self._add("order", name, ranks=np.array(orders, np.uint16).reshape(len(orders), self.size))

    def attributes(self, **attributes: Any) -> None:
        """Set attributes of the root group after creation, such as the clock drift known at the end."""
        self._guarded("written", lambda file: _set_attributes(file, attributes))

    def flush(self) -> None:
        """Write every row so far and commit it."""
        started = self.clock()
        tables = {table: self._columns(table) for table in TABLES}
        self._guarded("written", lambda file: self._write(file, tables))
        self._last_flush = self.clock()
        self._flush_ns += self._last_flush - started

    def close(self, complete: bool = True) -> None:
        """Write what is left and close the file; only `complete=True` marks it as the trace of a regular
        end."""
        if self._file is None:
            return
        self.flush()
        self._guarded("closed", lambda file: self._finish(file, complete))
        self._file = None

    def __enter__(self) -> Tracer:
        return self

    def __exit__(self, kind, error, traceback) -> None:
        self.close(complete=kind is None)

    def _add(self, table: str, name: int | str, **columns: np.ndarray) -> None:
        number = self.name(name) if isinstance(name, str) else name
        self._pending[table].append({"repeat": self.repeat, "step": self.step, "name": number, **columns})

    def _columns(self, table: str) -> dict[str, np.ndarray]:
        """The rows of `table` that are not yet written, as columns; they are forgotten here."""
        if table == "events":
            return self._event_columns()
        pending, self._pending[table] = self._pending[table], []
        if not pending:
            return {}
        arrays = [next(v for v in piece.values() if isinstance(v, np.ndarray)) for piece in pending]
        lengths = [len(array) for array in arrays]
        return {
            column: np.concatenate([piece[column] for piece in pending])
            if isinstance(pending[0][column], np.ndarray)
            else np.repeat([piece[column] for piece in pending], lengths)
            for column in TABLES[table]
        }

    def _event_columns(self) -> dict[str, np.ndarray]:
        rows = np.frombuffer(bytes(self._rows), np.int64).reshape(-1, 4)
        self._rows.clear()
        first = np.array([mark[0] for mark in self._marks] + [len(rows)])
        self._marks, marks = [(0, self.repeat, self.step)], self._marks
        if not len(rows):
            return {}
        lengths = np.diff(first)
        repeat, step = (np.repeat([mark[k] for mark in marks], lengths) for k in (1, 2))
        start, end, name, nbytes = rows.T
        return {"start": start, "end": end, "name": name, "repeat": repeat, "step": step, "bytes": nbytes}

    def _write(self, file, tables: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        names = list(self._names)[self._names_written :]
        if names:
            file["names"].resize((len(self._names),))
            file["names"][self._names_written :] = names
            self._names_written = len(self._names)
        for table, columns in tables.items():
            for column, rows in columns.items():
                dataset = file[table][column]
                begin = self._committed[table]
                dataset.resize(begin + len(rows), axis=0)
                dataset[begin:] = rows
            if columns:
                self._committed[table] += len(rows)
        file.flush()
        file["committed"][:] = [self._committed[table] for table in TABLES]
        file.flush()

    def _finish(self, file, complete: bool) -> None:
        file["tracer"].attrs.update(
            events=self._committed["events"],
            ns_per_event=self.ns_per_event,
            flush_ns=self._flush_ns,
            bytes=file.id.get_filesize(),
            dropped=0,
        )
        file.attrs["complete"] = complete
        file.flush()
        file.close()

    def _guarded(self, verb: str, action: Callable) -> None:
        if self._file is None:
            return
        try:
            action(self._file)
        except (OSError, RuntimeError) as error:  # h5py raises both when the file system refuses
            raise self._failed(verb, error) from error

    def _failed(self, verb: str, error: Exception) -> TraceError:
        self._file = None  # the HDF5 library would only fail again: the file is abandoned as it is
        return TraceError(
            f"rank {self.rank}: the trace {self.path} cannot be {verb}: {_reason(error)}; free or choose "
            "other disk "
            "space (--out DIR), or record less (--trace off). Rows committed before are readable."
        )


def _no_event(name: int, start: int, nbytes: int = 0) -> None:
    """The null event of level "off"."""


def _recorder(rows: bytearray) -> Callable[..., None]:
    """`event` as a closure: local names are the fastest Python has."""
    extend, pack, clock = rows.extend, _EVENT.pack, time.perf_counter_ns

    def event(name: int, start: int, nbytes: int = 0) -> None:
        """Close the region `name` that was opened at `start` = `tracer.clock()`; `nbytes` went through it."""
        extend(pack(start, clock(), name, nbytes))

    return event


def _measure(event: Callable, clock: Callable, count: int = 2000) -> float:
    """Nanoseconds per region, two clock reads and the event together: the best of a few short runs."""
    best = float("inf")
    for _ in range(5):
        begin = clock()
        for _ in range(count):
            start = clock()
            event(0, start)
        best = min(best, (clock() - begin) / count)
    return best


def _create(path: Path, attributes: Mapping[str, Any], size: int):
    import h5py

    # "x": never write over a trace. The default libver: files of libver="latest" do not reopen after SIGKILL.
    file = h5py.File(path, "x")
    _set_attributes(file, {"format": FORMAT, "schema": SCHEMA, "complete": False, **attributes, "size": size})
    for table, columns in TABLES.items():
        group = file.create_group(table)
        for column, dtype in columns.items():
            tail = (size,) if column == "ranks" else ()
            group.create_dataset(
                column,
                shape=(0, *tail),
                maxshape=(None, *tail),
                chunks=(max(1, CHUNK // max(1, *tail, 1)), *tail),
                dtype=np.dtype(dtype).newbyteorder("<"),
                shuffle=True,
                compression="gzip",
                compression_opts=1,
            )
    file.create_dataset("names", shape=(0,), maxshape=(None,), chunks=(256,), dtype=h5py.string_dtype())
    committed = file.create_dataset("committed", data=np.zeros(len(TABLES), "<i8"))
    committed.attrs["tables"] = list(TABLES)
    file.create_group("tracer")
    file.flush()
    return file


def _set_attributes(file, attributes: Mapping[str, Any]) -> None:
    for key, value in attributes.items():
        file.attrs[key] = json.dumps(value, sort_keys=True) if key in JSON_ATTRIBUTES else value


def _reason(error: Exception) -> str:
    """The reason in words: the system's where HDF5 passes an errno on, else the first line of its own
    message."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else str(error).splitlines()[0]
