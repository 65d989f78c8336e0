"""Stores the trace of one rank so that committed rows stay readable whenever the process is killed.

Committed bytes are never moved or written again. A compressed chunk is written once, when it is full. The remaining
rows go uncompressed into the `tail`, at fixed places, until they fill a chunk. Tables fill their chunks at different
times, so a file that was never closed is read up to the last moment at which all tables were written together.

The record `committed` holds the hashes of the committed rows (`commits`). One write stores it, after the data has
reached the operating system. Compressed chunks must not grow in place: of files killed while they flushed such chunks,
one in seven was unreadable. Closing a file seals it by a hash of all its bytes (`miniapps.untrusted.sealed`).
"""

from __future__ import annotations

import bisect
import contextlib
import io
import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from miniapps.trace.commits import SHAPE, Commit, Hasher, attributes_digest
from miniapps.trace.schema import FORMAT, GROWING, JSON_ATTRIBUTES, SCHEMA
from miniapps.untrusted.sealed import HEADER, header, seal

Columns = dict[str, np.ndarray]

CHUNK_NODE = b"TREE\x01"  # HDF5 File Format Specification, III.A.1; the next byte is the level


def chunk_rows(table: str, size: int) -> int:
    """Rows per chunk: 32 KiB of int64 for the events, less for tables that grow slowly or have wide rows."""
    if table == "order":
        return min(1024, max(16, 65536 // size))
    if table in ("choices", "usage"):  # they have few rows, and a tail takes the space of a chunk
        return 256
    return 4096 if table in ("events", "names") else 1024


class Sink(io.FileIO):
    """A file for HDF5 whose writes never fail: after a first error it writes nothing, and `check` raises the error.

    The HDF5 library cannot abandon a file that it cannot write: it tries again when the file is closed and when the
    process ends, and crashes.

    The sink holds HDF5's writes until a flush, and then writes them in an order that keeps every chunk in reach,
    whenever the process is killed. (HDF5 itself writes them in any order, and a kill can make a grown tree unreadable.)
    A full node of a tree of chunks (a B-tree of version 1) gives the last of its chunks to a new node, and its parent
    gets a pointer to that. So new places come first, then the nodes, parents before their children, then the rest.
    """

    error: OSError | None = None
    _end = 0  # of what was written

    def __init__(self, path: Path, mode: str):
        super().__init__(path, mode)
        self._held: dict[int, bytes] = {}  # by place in the file, without overlaps
        self._places: list[int] = []  # the keys of `_held`, ascending

    def write(self, data) -> int:
        """Hold `data` for the current place of the file."""
        place, size = self.tell(), len(memoryview(data).cast("B"))
        for other in self._overlapping(place, size):
            before = self._held[other]
            self._drop_held(other)
            if other < place:
                self._hold(other, before[: place - other])
            if other + len(before) > place + size:
                self._hold(place + size, before[place + size - other :])
        self._hold(place, bytes(data))
        self.seek(place + size)
        return size

    def readinto(self, buffer) -> int:
        """Read the file, overlaid with the held data."""
        place, into = self.tell(), memoryview(buffer).cast("B")
        count = super().readinto(into) or 0
        for other in self._overlapping(place, len(into)):
            held = self._held[other]
            begin, end = max(place, other), min(place + len(into), other + len(held))
            into[begin - place : end - place] = held[begin - other : end - other]
            count = max(count, end - place)
        self.seek(place + count)
        return count

    def flush(self) -> None:
        """Write all held data; after an error, nothing."""
        end = self._end
        for place in sorted(self._places, key=lambda place: _turn(place, self._held[place], end)):
            self.put(place, self._held[place])
            self._end = max(self._end, place + len(self._held[place]))
        self._held.clear()
        self._places.clear()

    def put(self, place: int, data: bytes) -> None:
        """Write `data` at `place` now; after an error, nothing."""
        try:
            while self.error is None and data:
                written = os.pwrite(self.fileno(), data, place)
                place, data = place + written, data[written:]
        except OSError as error:
            self.error = error

    def _hold(self, place: int, data: bytes) -> None:
        self._held[place] = data
        bisect.insort(self._places, place)

    def _drop_held(self, place: int) -> None:
        del self._held[place]
        del self._places[bisect.bisect_left(self._places, place)]

    def _overlapping(self, place: int, size: int) -> list[int]:
        last = bisect.bisect_left(self._places, place + size)
        first = last
        while first and self._places[first - 1] + len(self._held[self._places[first - 1]]) > place:
            first -= 1
        return self._places[first:last]

    def truncate(self, size: int | None = None) -> int:
        """Set the size of the file; after an error, keep it."""
        try:
            if self.error is None:
                super().truncate(size)
        except OSError as error:
            self.error = error
        return size or 0

    def check(self) -> None:
        """Raise the first error."""
        if self.error is not None:
            raise self.error

    def drop(self) -> None:
        """Write nothing from now on."""
        self.error = self.error or OSError("the file is abandoned")

    def size(self) -> int:
        """Bytes in the file."""
        return os.fstat(self.fileno()).st_size


def _turn(place: int, data: bytes, end: int) -> tuple[int, int]:
    """The key by which `Sink` sorts its writes; `end`: of the file before them. Ties: the end of the file first."""
    if place >= end:
        return 0, -place
    if data.startswith(CHUNK_NODE):
        return 1, -int.from_bytes(data[len(CHUNK_NODE) : len(CHUNK_NODE) + 1])  # its level: leaves have 0
    return 2, -place


class Storage:
    """Tables of growing columns in a new HDF5 file. Write errors pass through; after one, call only `abandon`."""

    def __init__(self, path: Path, attributes: Mapping[str, Any], size: int):
        import h5py
        from h5py import h5d, h5g, h5t

        self._sink = Sink(path, "x+")
        # Default libver: files of libver="latest" do not reopen after SIGKILL.
        self.file = h5py.File(self._sink, "w", userblock_size=HEADER)
        self._sink.seek(0)
        self._sink.write(header())
        tail = h5g.create(self.file.id, b"tail")
        self._main, self._tail = {}, {}  # datasets by (table, column): opening one takes longer than writing
        self._held: dict[str, Columns] = {}  # rows that do not fill a chunk yet
        for table, columns in GROWING.items():
            self._held[table] = {}
            ends, tails = h5g.create(self.file.id, table.encode()), h5g.create(tail, table.encode())
            for more, some in itertools.groupby(columns, lambda column: (size,) if column == "ranks" else ()):
                shape = (chunk_rows(table, size), *more)
                growing, with_holes = _growing(shape), _with_holes(shape)
                for column in some:
                    dtype = np.dtype(columns[column]).newbyteorder("<")
                    self._held[table][column] = np.empty((0, *more), dtype)
                    stored = h5t.py_create(dtype, logical=True)
                    self._main[table, column] = h5d.create(ends, column.encode(), stored, *growing)
                    self._tail[table, column] = h5d.create(tails, column.encode(), stored, *with_holes)
        self._names = 0  # number of names taken over
        self._rows = dict.fromkeys(GROWING, 0)
        self._tail_rows = dict.fromkeys(GROWING, 0)
        self._together, self._at = dict.fromkeys(GROWING, 0), (0, 0)
        self._hashers = {table: Hasher(table) for table in GROWING}
        self._digests = {table: hasher.digest() for table, hasher in self._hashers.items()}
        self._attributes: dict[str, Any] = {}  # as they are in the file
        committed = self.file.create_dataset("committed", data=np.zeros(SHAPE, "<u8"))
        self._committed = committed.id.get_offset()  # its fixed place in the file
        self.file.create_group("tracer")
        first = {"format": FORMAT, "schema": SCHEMA, "complete": False, **attributes, "size": size}
        self._set(_as_text(first))
        self.commit()

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes of the root group; pass those of JSON_ATTRIBUTES as Python objects."""
        text = _as_text(attributes)
        hashes = attributes_digest(self._attributes), attributes_digest(self._attributes | text)
        self.commit(hashes)  # a kill between the next lines leaves attributes with one of the two
        self._set(text)
        self.commit()

    def append(self, tables: Mapping[str, Columns], names: list[str]) -> None:
        """Take over rows; write and commit full chunks. `names`: all names so far. Raises ValueError for fewer names
        than in the last call."""
        if len(names) < self._names:
            raise ValueError(f"{len(names)} names, and there were {self._names} before: give all of them")
        if new := names[self._names :]:
            lines = "".join(f"{json.dumps(name)}\n" for name in new).encode()
            self._names = len(names)
            # Names precede the rows that refer to them, and are committed before the tail is overwritten.
            if self._hold("names", {"text": np.frombuffer(lines, np.uint8)}):
                self.commit()
        if any([self._hold(table, columns) for table, columns in tables.items()]):
            self._write_tail("names")  # the rows refer to them
            self.commit()

    def write_tails(self, at: tuple[int, int] = (0, 0)) -> None:
        """Write and commit all remaining rows, the incomplete chunks; `at`: current (repeat, step) of the program."""
        for table in GROWING:
            self._write_tail(table)
        self._together, self._at = self._totals(), at
        self.commit()

    def finish(self, complete: bool, tracer: Mapping[str, Any]) -> str:
        """Move the tails to their tables, write the attributes of the group `tracer`, close and seal the file; returns
        its seal in hex."""
        for table, held in self._held.items():
            self._write(table, _length(held))
        self._together = self._totals()
        self.commit()
        self.file["tracer"].attrs.update(tracer, bytes=self._sink.size())
        self.file.attrs["complete"] = complete
        self._flush()
        self.file.close()
        self._sink.flush()
        digest = seal(self._sink)
        self._sink.flush()
        self._sink.check()
        self._sink.close()
        return digest

    def abandon(self) -> None:
        """Leave the file as it is: readable up to its last commit. Safe after any error."""
        self._sink.drop()
        with contextlib.suppress(OSError, RuntimeError):
            self.file.close()
        self._sink.close()

    def _hold(self, table: str, columns: Columns) -> bool:
        """Take over rows and write full chunks; returns whether there were any."""
        held = self._held[table]
        for column, rows in columns.items():
            rows = rows.astype(held[column].dtype, copy=False)  # hash the bytes that the file stores
            held[column] = np.concatenate([held[column], rows]) if len(held[column]) else rows
        chunk = self._tail[table, next(iter(held))].shape[0]
        return self._write(table, _length(held) // chunk * chunk)

    def _write(self, table: str, count: int) -> bool:
        """Write the first `count` held rows to the end of the table; returns whether there were any."""
        if not count:
            return False
        held = self._held[table]
        written = {column: rows[:count] for column, rows in held.items()}
        for column, rows in written.items():
            dataset = self._main[table, column]
            dataset.set_extent((self._rows[table] + count, *rows.shape[1:]))
            _put(dataset, self._rows[table], rows)
            held[column] = held[column][count:]
        self._rows[table] += count
        self._tail_rows[table] = 0
        self._hashers[table].add(written)
        self._digests[table] = self._hashers[table].digest()
        return True

    def _write_tail(self, table: str) -> None:
        """Write the rows that do not fill a chunk."""
        held, begin = self._held[table], self._tail_rows[table]
        if _length(held) == begin:
            return
        for column, rows in held.items():
            _put(self._tail[table, column], begin, rows[begin:])
        self._tail_rows[table] = _length(held)
        self._digests[table] = self._hashers[table].digest(held)

    def commit(self, attributes: tuple[bytes, bytes] | None = None) -> None:
        """Flush, then write the commit record. `attributes`: their hashes before and after a change under way."""
        self._flush()
        if attributes is None:
            attributes = attributes_digest(self._attributes), attributes_digest(self._attributes)
        commit = Commit(self._rows, self._tail_rows, self._digests, attributes, self._together, self._at)
        self._sink.put(self._committed, commit.record().tobytes())
        self._sink.check()

    def _set(self, text: Mapping[str, Any]) -> None:
        self._attributes |= text
        self.file.attrs.update(text)

    def _totals(self) -> dict[str, int]:
        return {table: self._rows[table] + self._tail_rows[table] for table in GROWING}

    def _flush(self) -> None:
        self.file.flush()
        self._sink.check()


# Low-level forms of `create_dataset`, `resize` and assignment, in half the time: a file has a hundred columns.


def _growing(chunk: tuple[int, ...]):
    """(space, properties) of an empty dataset that grows by chunks of this shape, shuffled and deflated."""
    from h5py import h5p, h5s

    properties = h5p.create(h5p.DATASET_CREATE)
    properties.set_obj_track_times(False)
    properties.set_chunk(chunk)
    properties.set_shuffle()
    properties.set_deflate(1)
    return h5s.create_simple((0, *chunk[1:]), (h5s.UNLIMITED, *chunk[1:])), properties


def _with_holes(shape: tuple[int, ...]):
    """(space, properties) of a dataset without fill values: its unwritten parts are holes in the file."""
    from h5py import h5d, h5p, h5s

    properties = h5p.create(h5p.DATASET_CREATE)
    properties.set_obj_track_times(False)
    properties.set_fill_time(h5d.FILL_TIME_NEVER)
    return h5s.create_simple(shape), properties


def _put(dataset, begin: int, rows: np.ndarray) -> None:
    """Write `rows` into `dataset` from its row `begin` on."""
    from h5py import h5s

    space = dataset.get_space()
    space.select_hyperslab((begin, *[0] * (rows.ndim - 1)), rows.shape)
    dataset.write(h5s.create_simple(rows.shape), space, np.ascontiguousarray(rows))


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values())))


def _as_text(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The `attributes` as stored in a file."""
    return {
        key: json.dumps(value, sort_keys=True) if key in JSON_ATTRIBUTES else _plain(value)
        for key, value in attributes.items()
    }


def _plain(value: Any) -> Any:
    """`value` with NumPy's numbers converted to Python's, as a reader gets it."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
