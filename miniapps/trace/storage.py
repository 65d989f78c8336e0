"""The file of one rank on disk: what is committed stays readable whenever the process is killed.

Bytes that a commit vouches for are never moved or written again. A compressed chunk is written once, when it
is full. Rows that do not fill one yet go uncompressed into the `tail`, at fixed places, until they do.
`committed` is raised after the data has reached the operating system, in one write. (When compressed chunks
grew in place, one in seven files that were killed while they flushed could not be read.)
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from miniapps.trace.schema import COMMITTED, FORMAT, JSON_ATTRIBUTES, SCHEMA, TABLES

Columns = dict[str, np.ndarray]


def chunk_rows(table: str, size: int) -> int:
    """Rows per chunk: 32 KiB of int64 for the events, less for tables that grow slowly or have wide rows."""
    if table == "order":
        return min(1024, max(16, 65536 // size))
    return 4096 if table == "events" else 1024


class Sink(io.FileIO):
    """A file to HDF5 that never fails: after a first error nothing more is written, and `check` raises it.

    The HDF5 library cannot give up a file that it cannot write: it tries again when it is closed, and when
    the process ends, and crashes.
    """

    error: OSError | None = None

    def write(self, data) -> int:
        """Write all of `data`, or, after an error, nothing."""
        rest = memoryview(data)
        try:
            while self.error is None and rest:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.error = error
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        """Set the size of the file, or, after an error, leave it."""
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
        """From now on, write nothing."""
        self.error = self.error or OSError("the file is abandoned")

    def size(self) -> int:
        """Bytes in the file."""
        return os.fstat(self.fileno()).st_size


class Storage:
    """Tables of growing columns in one HDF5 file, which must not exist. Errors of
    writing pass through, after which only `abandon` is of use."""

    def __init__(self, path: Path, attributes: Mapping[str, Any], size: int):
        import h5py

        self._sink = Sink(path, "x+")
        # Default libver: files of libver="latest" do not reopen after SIGKILL.
        self.file = h5py.File(self._sink, "w")
        self.set_attributes(
            {"format": FORMAT, "schema": SCHEMA, "complete": False, **attributes, "size": size}
        )
        tail = self.file.create_group("tail")
        self._main, self._tail = {}, {}  # datasets by (table, column): opening one takes longer than writing
        self._held: dict[str, Columns] = {}  # rows that do not fill a chunk yet
        for table, columns in TABLES.items():
            self._held[table] = {}
            for column, dtype in columns.items():
                more = (size,) if column == "ranks" else ()
                chunk = (chunk_rows(table, size), *more)
                dtype = np.dtype(dtype).newbyteorder("<")
                self._held[table][column] = np.empty((0, *more), dtype)
                self._main[table, column] = self.file.create_dataset(
                    f"{table}/{column}",
                    shape=(0, *more),
                    maxshape=(None, *more),
                    chunks=chunk,
                    dtype=dtype,
                    shuffle=True,
                    compression="gzip",
                    compression_opts=1,
                )
                # Without fill the unused part of a tail is a hole in the file.
                self._tail[table, column] = tail.create_dataset(
                    f"{table}/{column}", shape=chunk, dtype=dtype, fill_time="never"
                )
        self._names = self.file.create_dataset(
            "names", shape=(0,), maxshape=(None,), chunks=(256,), dtype=h5py.string_dtype()
        )
        self._rows = dict.fromkeys(COMMITTED, 0)
        self._tail_rows = dict.fromkeys(COMMITTED, 0)
        self._committed = self.file.create_dataset("committed", data=np.zeros((2, len(COMMITTED)), "<i8"))
        self._committed.attrs["tables"] = COMMITTED
        self.file.create_group("tracer")
        self._flush()

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes of the root group; those that are JSON in the file are given as Python objects."""
        for key, value in attributes.items():
            self.file.attrs[key] = json.dumps(value, sort_keys=True) if key in JSON_ATTRIBUTES else value

    def append(self, tables: Mapping[str, Columns], names: list[str]) -> None:
        """Take over rows; what fills chunks is written and committed. `names` are all names so far."""
        if new := names[self._rows["names"] :]:
            self._names.resize(len(names), axis=0)
            self._names[self._rows["names"] :] = new
            self._rows["names"] = len(names)
        full = False
        for table, columns in tables.items():
            held = self._held[table]
            for column, rows in columns.items():
                held[column] = np.concatenate([held[column], rows]) if len(held[column]) else rows
            chunk = self._tail[table, "name"].shape[0]
            full |= self._write(table, len(held["name"]) // chunk * chunk)
        if full:
            self._commit()

    def write_tails(self) -> None:
        """Write and commit the rows that do not fill a chunk."""
        for (table, column), dataset in self._tail.items():
            rows, begin = self._held[table][column], self._tail_rows[table]
            if len(rows) > begin:
                dataset[begin : len(rows)] = rows[begin:]
        for table, columns in self._held.items():
            self._tail_rows[table] = len(columns["name"])
        self._commit()

    def finish(self, complete: bool, tracer: Mapping[str, Any]) -> None:
        """Move the tails to their tables, write the attributes of the group `tracer`, and close."""
        for table, columns in self._held.items():
            self._write(table, len(columns["name"]))
        self._commit()
        self.file["tracer"].attrs.update(tracer, bytes=self._sink.size())
        self.file.attrs["complete"] = complete
        self._flush()
        self.file.close()
        self._sink.check()
        self._sink.close()

    def abandon(self) -> None:
        """Leave the file as it is: readable up to its last commit. Safe whatever happened before."""
        self._sink.drop()
        with contextlib.suppress(OSError, RuntimeError):
            self.file.close()
        self._sink.close()

    def _write(self, table: str, count: int) -> bool:
        """Write the first `count` rows that are held to the end of the table; whether there were any."""
        if not count:
            return False
        held = self._held[table]
        for column, rows in held.items():
            dataset = self._main[table, column]
            dataset.resize(self._rows[table] + count, axis=0)
            dataset[self._rows[table] :] = rows[:count]
            held[column] = rows[count:]
        self._rows[table] += count
        self._tail_rows[table] = 0
        return True

    def _commit(self) -> None:
        self._flush()
        self._committed[...] = [list(self._rows.values()), list(self._tail_rows.values())]
        self._flush()

    def _flush(self) -> None:
        self.file.flush()
        self._sink.check()
