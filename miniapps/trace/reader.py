"""Reads trace files into NumPy columns after checking them; independent of applications and MPI.

The reader loads a whole file into memory, checks its seal, and opens it there by the low-level interface of h5py. That
is three times as fast as reading datasets from disk, and needs no lock on a file that a running program still writes.
Then it checks every object, the rows against the hashes of the last commit, and the attributes against a schema
(docs/reference/trace.md).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from miniapps.trace.commits import Commit, Hasher, attributes_digest, parse, table_digest
from miniapps.trace.head import check
from miniapps.trace.schema import (
    FORMAT,
    GROWING,
    JSON_ATTRIBUTES,
    NAMED,
    NODE_FORMAT,
    SCHEMA,
    TABLES,
    TraceError,
    rank_file,
)
from miniapps.untrusted import Refused, contents, records
from miniapps.untrusted.regular import open_regular, require_dense
from miniapps.untrusted.sealed import HEADER, sealed
from miniapps.untrusted.text import printable, whole

TRIES = 5  # to read a file that a running program writes to
FILES = re.compile(r"(rank|node)-\d{5,9}\.h5")
FILE_MOST = 8 * 2**30  # bytes
END_OF_FILE = 40  # bytes into a superblock of version 0
NAMES_MOST = 2**20  # in one file
# Ranges [low, end) of integers in the tables. Sums of times cannot overflow.
BOUNDS = {"repeat": (0, 2**31), "step": (0, 2**31), "block": (-1, 2**31), "start": (0, 2**62), "end": (0, 2**62),
          "bytes": (0, 2**62), "flops": (0, 2**62), "after": (0, 2**62), "count": (0, 2**62)}  # fmt: skip


@dataclass(frozen=True)
class RankTrace:
    """The trace of one rank.

    `attributes`: of the root group, JSON decoded, with the attributes of the group `tracer` as a dict under "tracer"
    (empty if the run was killed); `names[i]`: the name for the integer `i` in a column `name`; `tables[table][column]`:
    the committed rows; `digest`: the seal of the file, empty if the run was killed. From a file that was never closed
    come the rows up to the last moment at which all tables were written together, in `at` = (repeat, step): no row of
    a step before `at` is missing. `at` is None for a closed file.
    """

    path: Path
    attributes: dict[str, Any]
    names: list[str]
    tables: dict[str, dict[str, np.ndarray]]
    digest: str = ""
    at: tuple[int, int] | None = None

    @property
    def complete(self) -> bool:
        """Whether the run ended regularly; if not, the tables end at the last flush."""
        return self.attributes["complete"]


def read(
    path: str | os.PathLike, tables: Iterable[str] | None = None, image: bytes | None = None
) -> RankTrace:
    """Reads one `rank-*.h5`: the attributes, and the given `tables` (None: all of `schema.TABLES`; empty: none).
    `image`: the bytes of the file, if the caller has them.

    Raises TraceError, with the file and the remedy, for a file that is missing, not HDF5, damaged, not a trace or of
    another schema.
    """
    return read_all(path, tables, image)[0]


def read_all(
    path: str | os.PathLike, tables: Iterable[str] | None = None, image: bytes | None = None
) -> list[RankTrace]:
    """Reads the traces in one file, by rank: one from a `rank-*.h5`, several from a `node-*.h5`. Otherwise as
    `read`."""
    path = Path(path)
    wanted = list(TABLES) if tables is None else list(tables)
    if unknown := [table for table in wanted if table not in TABLES]:
        raise ValueError(f"no table {', '.join(unknown)} in a trace; the tables are {', '.join(TABLES)}")
    image = read_image(path) if image is None else image
    shown, digest = printable(str(path)), ""
    try:
        _known(image, shown)
        digest = sealed(image, shown)
        image = image if digest else _to_its_end(image)
        with contents.opened(image, shown) as root:
            attributes = _attributes(root, shown)
            room = contents.Room(image)
            if attributes["format"] == NODE_FORMAT:
                traces = _of_node(path, root, attributes, digest, wanted, room)
            else:
                traces = [_of_rank(path, root, attributes, digest, wanted, room)]
        for trace in traces:
            _check(trace, shown)
    except Refused as error:
        cut = "" if digest else "damaged, or cut off in the midst of a write: "
        raise TraceError(str(error).replace("damaged, ", cut or "damaged, ", 1)) from error
    return traces


def _to_its_end(image: bytes) -> bytes:
    """The bytes of an unclosed file with the end of file corrected in its superblock: a kill during a flush may leave
    committed data beyond the recorded end."""
    begin, end = HEADER + END_OF_FILE, HEADER + END_OF_FILE + 8
    if image[HEADER : HEADER + 9] != b"\x89HDF\r\n\x1a\n\0" or len(image) < end:
        return image
    return image[:begin] + len(image).to_bytes(8, "little") + image[end:]


def read_image(path: str | os.PathLike) -> bytes:
    """The bytes of a trace file at one moment, even if a running program writes to it.

    Raises TraceError if the file is missing, unreadable, or not a regular file.
    """
    path = Path(path)
    shown = printable(str(path))
    try:
        for _ in range(TRIES):
            with open_regular(path, FILE_MOST) as file:
                before = os.fstat(file.fileno())
                require_dense(file, path)
                image = file.read(before.st_size + 1)
                after = os.fstat(file.fileno())
            if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, len(image)):
                return image
    except Refused as error:
        raise TraceError(str(error)) from error
    except FileNotFoundError as error:
        raise TraceError(f"{shown}: no such file; give a rank-*.h5 of a run") from error
    except OSError as error:
        raise TraceError(
            f"{shown}: cannot be read: {error.strerror}; make it readable, or leave this run out"
        ) from error
    raise TraceError(f"{shown}: a program keeps writing to it; read it again when the run has ended")


def trace_files(run: str | os.PathLike) -> list[Path]:
    """The trace files of ranks and nodes in the directory `run`, sorted by name."""
    return sorted(path for path in Path(run).glob("*.h5") if FILES.fullmatch(path.name))


def raw_logs(run: str | os.PathLike) -> list[Path]:
    """The logs in the directory `run` from which `fpna run` made no traces, because its processes were killed."""
    return sorted(Path(run).glob("raw-*.log"))


def how_to_recover(run: str | os.PathLike) -> str:
    """The advice for a run with such logs; empty without any."""
    advice = f"its processes were killed before they wrote its traces: fpna run --recover {run}"
    return advice if raw_logs(run) else ""


def in_this_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns `function(*arguments)`: the default way to call functions that open files."""
    return function(*arguments)


def read_run(
    run: str | os.PathLike,
    tables: Iterable[str] | None = None,
    ranks: Iterable[int] | None = None,
    call: Callable[..., Any] = in_this_process,
) -> Iterator[RankTrace]:
    """Yields the traces of all `ranks` of the directory `run` (None: all), rank 0 first, with one file in memory at a
    time. `tables` as for `read`.

    `call(function, path, *arguments)` runs every function that opens files. Raises TraceError if there are no traces,
    if the trace of a rank is missing or unreadable, or if it is of another rank than its name says.
    """
    wanted = None if ranks is None else set(ranks)
    columns = None if tables is None else list(tables)
    held: dict[Path, dict[int, RankTrace]] = {}
    for rank, path in enumerate(call(rank_files, Path(run))):
        if wanted is not None and rank not in wanted:
            continue
        if path not in held:
            held = {path: {trace.attributes["rank"]: trace for trace in call(read_all, path, columns)}}
        if rank not in held[path]:
            theirs = ", ".join(map(str, held[path]))
            raise TraceError(
                f"{printable(str(path))}: the trace of rank {theirs}, not of rank {rank} as its name says; copy "
                "the whole directory again, or leave this run out"
            )
        yield held[path][rank]


def rank_files(run: str | os.PathLike) -> list[Path]:
    """The file that holds the trace of each rank of the directory `run`, rank 0 first.

    Raises TraceError if there are none, or if the trace of a rank is missing.
    """
    run = Path(run)
    files = trace_files(run)
    if not files:
        advice = how_to_recover(run) or "give the directory of a run (the RUN line of its output)"
        raise TraceError(f"{run}: no rank-*.h5 in it; {advice}")
    by_rank = {}
    for path in files:
        if path.name.startswith("rank-"):
            by_rank[int(path.stem.removeprefix("rank-"))] = path
        else:
            by_rank |= {trace.attributes["rank"]: path for trace in read_all(path, tables=())}
    size = read_all(files[0], tables=())[0].attributes["size"]
    if missing := size - sum(rank < size for rank in by_rank):
        some = islice((rank_file(rank) for rank in range(size) if rank not in by_rank), 4)
        shown = ", ".join(some) + (f" and {missing - 4} more" if missing > 4 else "")
        advice = how_to_recover(run) or "copy the whole directory, or leave it out"
        raise TraceError(f"{run}: a run of {size} ranks without {shown}; {advice}")
    return [by_rank[rank] for rank in range(size)]


def _of_rank(
    path: Path, root, attributes: dict[str, Any], digest: str, wanted: list[str], room: contents.Room
) -> RankTrace:
    shown = printable(str(path))
    commit = parse(contents.array(root, "committed", shown, room, "<u8", 2))
    if attributes_digest(attributes) not in commit.attributes:
        raise ValueError("its attributes are not those that were written")
    if not isinstance(attributes.get("complete"), bool):
        raise ValueError("its attribute complete is neither true nor false")
    inner = contents.subgroup(root, "tracer", None, shown)
    attributes |= {
        "tracer": contents.attributes(inner, shown),
        "complete": bool(digest) and attributes["complete"],  # a file without a seal was never finished
    }
    tail = contents.subgroup(root, "tail", len(GROWING), shown)
    tables = {
        table: _committed(table, contents.subgroup(root, table, len(GROWING[table]), shown),
                          contents.subgroup(tail, table, len(GROWING[table]), shown),
                          commit, f"{shown}: {table}", room, bool(digest))
        for table in (*wanted, "names")
    }  # fmt: skip
    text = tables.pop("names")["text"].tobytes()
    lines = text[: text.rfind(b"\n") + 1]  # a kill may leave half a line that no row refers to yet
    if lines.count(b"\n") > NAMES_MOST:
        raise ValueError(f"more than {NAMES_MOST:,} names")
    at = None if digest else commit.at
    names = [_text(line) for line in lines.decode().splitlines()]
    return RankTrace(path, attributes, names, tables, digest, at)


def _of_node(
    path: Path, root, attributes: dict[str, Any], digest: str, wanted: list[str], room: contents.Room
) -> list[RankTrace]:
    if not digest:
        raise ValueError("it was never finished")
    shown = printable(str(path))
    heads, names = (
        records.loads(contents.array(root, name, shown, room, "u1", 1).tobytes(), shown)
        for name in ("attributes", "names")
    )
    if not (isinstance(heads, list) and isinstance(names, list) and all(isinstance(n, str) for n in names)):
        raise ValueError("attributes and names are not lists")
    if any(not isinstance(head, dict) or head.get("schema") != attributes["schema"] for head in heads):
        raise ValueError("its schema is not that of its ranks")
    begin = contents.subgroup(root, "rows", len(TABLES), shown)
    tables, ends = {}, {}
    for table in wanted:
        ends[table] = contents.array(begin, table, shown, room, "<i8", 1)
        known = TABLES[table]
        group = contents.subgroup(root, table, len(known), shown)
        tables[table] = {
            column: contents.array(
                group, column, f"{shown}: {table}", room, _little(dtype), 1 + (column == "ranks")
            )
            for column, dtype in known.items()
        }
        lengths = {len(rows) for rows in tables[table].values()}
        if len(ends[table]) != len(heads) + 1 or ends[table][0] or (np.diff(ends[table]) < 0).any():
            raise ValueError(f"rows/{table} does not divide the rows between {len(heads)} ranks")
        if lengths != {int(ends[table][-1])}:
            raise ValueError(f"{table} does not have {ends[table][-1]} rows")
    traces = []
    for i, head in enumerate(heads):
        own = {
            table: {column: rows[ends[table][i] : ends[table][i + 1]] for column, rows in columns.items()}
            for table, columns in tables.items()
        }
        traces.append(RankTrace(path, head, names, own, digest))
    return traces


def _known(image: bytes, shown: str) -> None:
    """Raise TraceError for an HDF5 file of another schema: it lacks our header."""
    if image.startswith(b"\x89HDF\r\n\x1a\n"):
        raise TraceError(
            f"{shown}: an HDF5 file, but not a trace of schema {SCHEMA}: repeat the run with "
            "this version, or leave it out"
        )


def _attributes(root, shown: str) -> dict[str, Any]:
    attributes = contents.attributes(root, shown)
    kind, schema = attributes.get("format"), attributes.get("schema")
    if kind not in (FORMAT, NODE_FORMAT):
        raise TraceError(
            f"{shown}: an HDF5 file, but not a trace (no attribute format={FORMAT}); leave it out"
        )
    if schema != SCHEMA:
        raise TraceError(
            f"{shown}: written with trace schema {printable(str(schema))}, this version reads {SCHEMA}; install the "
            "version that wrote it, or leave it out"
        )
    expected = len(GROWING if kind == FORMAT else TABLES) + 3
    if root.get_num_objs() != expected:
        raise ValueError(f"{root.get_num_objs()} members in the root group, and {expected} are expected")
    return attributes


def _committed(
    table: str, main, tail, commit: Commit, shown: str, room: contents.Room, closed: bool
) -> dict[str, np.ndarray]:
    """The committed rows of a table, from full chunks and the tail, after checking their hash. From a file that was
    not `closed`, only the rows that were written together with the other tables."""
    rows, tail_rows = commit.rows[table], commit.tail_rows[table]
    # Most runs have tables without rows, and opening a dataset takes long.
    empty = not rows + tail_rows and commit.digests[table] == Hasher(table).digest()
    columns = {}
    for column, dtype in GROWING[table].items():
        axes = 1 + (column == "ranks")
        if empty and axes == 1:
            columns[column] = np.empty(0, dtype)
            continue
        values = contents.array(main, column, shown, room, _little(dtype), axes, rows)
        if tail_rows:
            more = contents.array(tail, column, shown, room, _little(dtype), axes, tail_rows)
            values = np.concatenate([values, more])
        if len(values) != rows + tail_rows:
            raise ValueError(f"{table}/{column} has {len(values)} of {rows + tail_rows} committed rows")
        columns[column] = values
    if table_digest(table, columns) != commit.digests[table]:
        raise ValueError(f"the rows of {table} are not those that were written")
    return columns if closed else {column: rows[: commit.together[table]] for column, rows in columns.items()}


def _check(trace: RankTrace, shown: str) -> None:
    """Raise Refused unless attributes and rows have the form that this program writes."""
    for key in JSON_ATTRIBUTES:
        if isinstance(trace.attributes.get(key), str):
            trace.attributes[key] = records.loads(
                trace.attributes[key].encode(), f"{shown}: the attribute {key}"
            )
    trace.attributes.update(whole(trace.attributes))
    trace.names[:] = map(whole, trace.names)
    if len(set(trace.names)) < len(trace.names):
        raise Refused(f"{shown}: names has a name twice, which this program never writes; leave this run out")
    check(trace.attributes, shown)
    size = trace.attributes["size"]
    for table, columns in trace.tables.items():
        if not len(columns["name"]):
            continue
        for column, (low, end) in (BOUNDS | dict.fromkeys(NAMED, (0, len(trace.names)))).items():
            rows = columns.get(column)
            if rows is not None and not low <= rows.min() <= rows.max() < end:
                raise Refused(
                    f"{shown}: {table}/{column} has numbers below {low} or not below {end}; leave this run out"
                )
        if "ranks" in columns and columns["ranks"].shape[1] != size:
            raise Refused(
                f"{shown}: {table}/ranks has {columns['ranks'].shape[1]} ranks, not {size}; leave this run out"
            )


def _text(line: str) -> str:
    name = json.loads(line)
    if not isinstance(name, str):
        raise ValueError("names has a line that is not text")
    return name


def _little(dtype: str) -> np.dtype:
    return np.dtype(dtype).newbyteorder("<")
