"""Reads trace files into NumPy columns; knows nothing of applications, MPI or pandas.

A file is read into memory in one piece and opened there, by the low-level interface of h5py: three times as fast as
reading dataset by dataset from disk, without a lock on a file that a running program still writes, and with the bytes
at hand for a hash of them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from miniapps.trace.schema import (
    FORMAT,
    JSON_ATTRIBUTES,
    NODE_FORMAT,
    SCHEMA,
    SINCE,
    TABLES,
    TraceError,
    rank_file,
)

TRIES = 5  # to read a file that is written to meanwhile
FILES = re.compile(r"(rank|node)-\d{5,}\.h5")


@dataclass(frozen=True)
class RankTrace:
    """The trace of one rank.

    `attributes` of the root group, JSON decoded, with those of the group `tracer` as a dict under "tracer"
    (empty where the run was killed); `names[i]` is the name that the integer `i` of a `name` column stands
    for; `tables[table][column]` is an array of the committed rows.
    """

    path: Path
    attributes: dict[str, Any]
    names: list[str]
    tables: dict[str, dict[str, np.ndarray]]

    @property
    def complete(self) -> bool:
        """Whether the run came to a regular end; if not, the tables end at the last flush."""
        return self.attributes["complete"]


def read(
    path: str | os.PathLike, tables: Iterable[str] | None = None, image: bytes | None = None
) -> RankTrace:
    """Read one `rank-*.h5`: the attributes, and the given `tables` (all of events, values, fingerprints,
    order where None, none where empty). `image` are its bytes, where the caller has them.

    Raises TraceError, naming the file and the remedy, when it is missing, not HDF5, damaged, not a trace or
    of a newer schema.
    """
    return read_all(path, tables, image)[0]


def read_all(
    path: str | os.PathLike, tables: Iterable[str] | None = None, image: bytes | None = None
) -> list[RankTrace]:
    """The traces in one file, by rank: one of a `rank-*.h5`, several of a `node-*.h5`. Otherwise as `read`."""
    import h5py

    path = Path(path)
    wanted = list(TABLES) if tables is None else list(tables)
    if unknown := [table for table in wanted if table not in TABLES]:
        raise ValueError(f"no table {', '.join(unknown)} in a trace; the tables are {', '.join(TABLES)}")
    image = read_image(path) if image is None else image
    try:
        file = h5py.h5f.open_file_image(image)
        try:
            attributes = _attributes(path, file)
            found = _of_node if attributes["format"] == NODE_FORMAT else _of_rank
            return found(path, file, attributes, wanted)
        finally:
            file.close()
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise TraceError(
            f"{path}: damaged or truncated, it cannot be read ({_first_line(error)}); copy it again from "
            "where the run wrote it, or leave this run out"
        ) from error


def read_image(path: str | os.PathLike) -> bytes:
    """The bytes of a trace file, as they were at one moment, even if a running program writes to it.

    Raises TraceError where it is missing or cannot be read.
    """
    path = Path(path)
    try:
        for _ in range(TRIES):
            with open(path, "rb") as file:
                before = os.fstat(file.fileno())
                image = file.read()
                after = os.fstat(file.fileno())
            if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, len(image)):
                return image
    except FileNotFoundError as error:
        raise TraceError(f"{path}: no such file; give a rank-*.h5 of a run") from error
    except OSError as error:
        raise TraceError(
            f"{path}: cannot be read: {error.strerror}; make it readable, or leave this run out"
        ) from error
    raise TraceError(f"{path}: is being written to all the time; read it again when the run has ended")


def trace_files(run: str | os.PathLike) -> list[Path]:
    """The trace files in the directory `run`, of ranks and of nodes, sorted by name; empty where there are none."""
    return sorted(path for path in Path(run).glob("*.h5") if FILES.fullmatch(path.name))


def read_run(
    run: str | os.PathLike, tables: Iterable[str] | None = None, ranks: Iterable[int] | None = None
) -> Iterator[RankTrace]:
    """The traces of all ranks of the directory `run`, or of some, rank 0 first; one file is in memory at a time.

    Raises TraceError when there are none, when the trace of a rank is missing or when one cannot be read.
    """
    wanted = None if ranks is None else set(ranks)
    places = dict(enumerate(rank_files(run)))
    held: dict[Path, dict[int, RankTrace]] = {}
    for rank, path in places.items():
        if wanted is not None and rank not in wanted:
            continue
        if path not in held:
            held = {path: {trace.attributes["rank"]: trace for trace in read_all(path, tables)}}
        yield held[path][rank]


def rank_files(run: str | os.PathLike) -> list[Path]:
    """The file that holds the trace of each rank of the directory `run`, rank 0 first.

    Raises TraceError when there are none or when the trace of a rank is missing.
    """
    run = Path(run)
    files = trace_files(run)
    if not files:
        raise TraceError(
            f"{run}: no rank-*.h5 in it; give the directory of a run (the RUN line of its output)"
        )
    found = {}
    for path in files:
        if path.name.startswith("rank-"):
            found[int(path.stem.removeprefix("rank-"))] = path
        else:
            found |= {trace.attributes["rank"]: path for trace in read_all(path, tables=())}
    size = read_all(files[0], tables=())[0].attributes["size"]
    if missing := [rank_file(rank) for rank in range(size) if rank not in found]:
        shown = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
        raise TraceError(
            f"{run}: a run of {size} ranks without {shown}; copy the whole directory, or leave it out"
        )
    return [found[rank] for rank in range(size)]


def _of_rank(path: Path, file, attributes: dict[str, Any], wanted: list[str]) -> list[RankTrace]:
    attributes["tracer"] = _attributes_of(file, b"tracer")
    committed = _dataset(file, "committed")
    order = [name.decode() for name in _attributes_of(file, b"committed")["tables"]]
    rows, tail_rows = (dict(zip(order, counts, strict=True)) for counts in committed.tolist())
    tables = {
        table: {
            column: _column(file, attributes["schema"], table, column, rows[table], tail_rows[table])
            for column in TABLES[table]
        }
        for table in wanted
    }
    names = [name.decode() for name in _dataset(file, "names")[: rows["names"]]]
    _check(tables, names)
    return [RankTrace(path, attributes, names, tables)]


def _of_node(path: Path, file, attributes: dict[str, Any], wanted: list[str]) -> list[RankTrace]:
    heads = json.loads(_dataset(file, "attributes").tobytes())
    names = json.loads(_dataset(file, "names").tobytes())
    traces = []
    tables, ends = {}, {}
    for table in wanted:
        ends[table] = _dataset(file, f"rows/{table}")
        if len(ends[table]) != len(heads) + 1:
            raise ValueError(f"rows/{table} is not of {len(heads)} ranks")
        tables[table] = {column: _dataset(file, f"{table}/{column}") for column in TABLES[table]}
        if {len(rows) for rows in tables[table].values()} != {int(ends[table][-1])}:
            raise ValueError(f"{table} has not {ends[table][-1]} rows")
    _check(tables, names)
    for i, head in enumerate(heads):
        own = {
            table: {column: rows[ends[table][i] : ends[table][i + 1]] for column, rows in columns.items()}
            for table, columns in tables.items()
        }
        traces.append(RankTrace(path, head, names, own))
    return traces


def _attributes(path: Path, file) -> dict[str, Any]:
    attributes = _attributes_of(file, b"/")
    if attributes.get("format") not in (FORMAT, NODE_FORMAT):
        raise TraceError(
            f"{path}: an HDF5 file, but not a trace (no attribute format={FORMAT}); leave it out"
        )
    if attributes["schema"] > SCHEMA:
        raise TraceError(
            f"{path}: written with trace schema {attributes['schema']}, this version reads up to {SCHEMA}; "
            "install the version that wrote it or a newer one"
        )
    for key in JSON_ATTRIBUTES:
        if key in attributes:
            attributes[key] = json.loads(attributes[key])
    return attributes


def _attributes_of(file, name: bytes) -> dict[str, Any]:
    """The attributes of the object `name`: strings, numbers, or arrays of these."""
    from h5py import h5a, h5o

    found = {}
    place = h5o.open(file, name)
    for i in range(h5a.get_num_attrs(place)):
        attribute = h5a.open(place, index=i)
        value = np.empty(attribute.shape, attribute.dtype)
        attribute.read(value)
        plain = value.tolist()
        found[attribute.name.decode()] = plain.decode() if isinstance(plain, bytes) else plain
    return found


def _dataset(file, name: str) -> np.ndarray:
    """All of a dataset."""
    from h5py import h5d, h5s

    dataset = h5d.open(file, name.encode())
    rows = np.empty(dataset.shape, dataset.dtype)
    if rows.size:
        dataset.read(h5s.ALL, h5s.ALL, rows)
    return rows


def _column(file, schema: int, table: str, column: str, rows: int, tail_rows: int) -> np.ndarray:
    """The committed rows of a column: those in full chunks, then those of the tail; -1 where the file's schema has no
    such column."""
    if SINCE.get(column, 0) > schema:
        return np.full(rows + tail_rows, -1, TABLES[table][column])
    main = _dataset(file, f"{table}/{column}")[:rows]
    if not tail_rows and len(main) == rows:
        return main
    tail = _dataset(file, f"tail/{table}/{column}")[:tail_rows]
    if (len(main), len(tail)) != (rows, tail_rows):
        raise ValueError(f"{table}/{column} has {len(main) + len(tail)} of {rows + tail_rows} committed rows")
    return np.concatenate([main, tail])


def _check(columns: dict[str, dict[str, np.ndarray]], names: list[str]) -> None:
    for table, arrays in columns.items():
        if len(arrays["name"]) and not 0 <= arrays["name"].min() <= arrays["name"].max() < len(names):
            raise ValueError(f"{table}/name points outside the {len(names)} names")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
