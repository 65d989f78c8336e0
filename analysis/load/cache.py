"""A cache of each run in files beside it, so that its traces are read once.

    RUN/.analysis/index.json          the NAME of the directory, a signature of the trace files, hashes of all files
    RUN/.analysis/NAME/fpna-cache     marks a directory that this program made
    RUN/.analysis/NAME/rows.bin       the hash trees, and the small tables (`analysis.load.packed`)
    RUN/.analysis/NAME/ranks.json     the facts that each rank states beside its rows
    RUN/.analysis/NAME/*.parquet      the large tables: more rows than one row group

The signature is made of names, sizes, inodes and times: a run that was copied is read again. A cache is used if this
user wrote it, and the hashes of all files and of the index are right; in any doubt it is made anew. If a cache cannot
be written, the program goes on without. A cache may be removed at any time.

No link is followed, neither `.analysis` nor anything in it. Old directories are removed only if they have the mark, and
then file by file, by the names that this program writes. A directory with other files in it stays, with these files.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import xxhash
from msgspec import Meta

from analysis.load.assemble import Run
from analysis.load.columns import PAYLOAD, STORED
from analysis.load.packed import packed, size, unpacked, width
from analysis.load.rows import Rows
from analysis.load.stated import Stated
from analysis.load.tree import LEAVES
from miniapps.trace import SCHEMA
from miniapps.untrusted import Refused, records
from miniapps.untrusted.result import RESULT, digest_of
from miniapps.untrusted.text import printable

DIRECTORY = ".analysis"
INDEX = "index.json"
MARK = "fpna-cache"
MARK_TEXT = b"made by python -m analysis; may be removed at any time\n"
VERSION = f"6 of schema {SCHEMA}"  # of the cache; raise the number when its contents change
GROUP = 16384  # rows of a row group, the smallest part of a large table that is read
INDEX_MOST = 2**26  # bytes of index.json, which holds the names and notes of a run
OLD_S = 3600.0  # a directory older than this that the index does not name is in use by no process
PIECE = 2**22  # bytes hashed at once

ROWS, STATED = "rows.bin", "ranks.json"
FILES = (ROWS, STATED, *(f"{table}.parquet" for table in STORED))
_NAME = re.compile(r"[0-9a-f]{32}")
Name = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]


class File(msgspec.Struct):
    """Size in bytes and hash (XXH3, 128 bits, hex) of a file."""

    size: int
    digest: Name


class Index(msgspec.Struct):
    """The contents of index.json, except `digest`, the hash of all other entries.

    `lengths` of tables and `leaves` of trees are numbers of rows; `width` is the size of an order in bytes."""

    version: str
    path: str
    signature: str
    name: Name
    names: list[str]
    rows: list[dict[str, Any]]
    notes: list[tuple[str, str, str, str]]
    lengths: dict[str, int]
    leaves: dict[str, int]
    width: int
    files: dict[str, File]


def signature(directory: Path, files: list[Path]) -> str:
    """A hash of name, size, inode and times of the trace `files` of a run and its result.json; a copy has another."""
    words = []
    for path in (*files, directory / RESULT):
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            words.append(
                f"{os.fsencode(path.name)!r} {status.st_size} {status.st_ino} {status.st_mtime_ns} {status.st_ctime_ns}"
            )
    return xxhash.xxh3_128_hexdigest("\n".join(words).encode())


def load(directory: Path, signed: str) -> tuple[Run, dict[str, Rows]] | None:
    """The run in `directory` and its tables from the cache; None if the cache is missing or in any doubt.

    `signed` is the `signature` of its trace files."""
    try:
        with _opened(directory) as place:
            index = _index(place)
            if (index.version, index.path, index.signature) != (VERSION, printable(str(directory)), signed):
                return None
            if set(index.lengths) != set(STORED) or set(index.leaves) != set(PAYLOAD):
                return None
            if set(index.files) != {ROWS, STATED, *(f"{table}.parquet" for table in _large(index.lengths))}:
                return None
            inner = os.open(index.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
            try:
                if not all(_is(inner, name, known) for name, known in index.files.items()):
                    return None
                kept = directory / DIRECTORY / index.name
                run = Run(
                    directory, index.rows, index.names, notes=index.notes, stated=Stated(path=kept / STATED)
                )
                with _reading(inner, ROWS) as file:
                    for table, leaves in index.leaves.items():
                        run.trees[table] = unpacked(file.read(size(LEAVES, leaves)), LEAVES, leaves)
            finally:
                os.close(inner)
        return run, _rows(kept, index)
    except (OSError, Refused, ValueError, KeyError, TypeError):  # ArrowInvalid is a ValueError
        return None


def save(run: Run, files: list[Path], signed: str) -> dict[str, Rows] | None:
    """Writes the cache of `run` and returns its tables on disk.

    None if traces were unreadable, changed since they were `signed`, or if the cache cannot be written."""
    unreadable = any(what in ("unreadable", "no trace") for what, *_ in run.notes)
    if unreadable or signature(run.path, files) != signed:
        return None
    name = secrets.token_hex(16)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(run.path / DIRECTORY)
        with _opened(run.path) as place:
            before = _named(place)
            try:
                index = Index(VERSION, printable(str(run.path)), signed, name, run.names, run.rows, run.notes,
                              {table: len(run.tables[table]["name"]) for table in STORED},
                              {table: len(run.trees[table]["name"]) for table in PAYLOAD},
                              width(run.tables["order"], STORED["order"]), _write(place, name, run))  # fmt: skip
                _write_index(place, index)
            except OSError:
                _remove(place, name)
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=place)  # empty if not even the mark could be written
                raise
            for other in os.listdir(place):
                if other == before or (other != name and _NAME.fullmatch(other) and _old(place, other)):
                    _remove(place, other)
    except (OSError, Refused):
        return None
    return _rows(run.path / DIRECTORY / name, index)


def _large(lengths: dict[str, int]) -> list[str]:
    """The tables that have their own file, which is read in parts."""
    return [table for table in STORED if lengths[table] > GROUP]


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    """A descriptor of RUN/.analysis, which is a directory of this user and no link. Raises OSError, Refused."""
    handle = os.open(directory / DIRECTORY, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            raise Refused(f"{printable(str(directory / DIRECTORY))}: of another user")
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def _reading(place: int, name: str) -> Iterator[Any]:
    """The regular file `name` of this user in the directory `place`, open. Raises OSError, Refused."""
    with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise Refused(f"{name}: no regular file of this user")
        yield file


def _index(place: int) -> Index:
    with _reading(place, INDEX) as file:
        if (size := os.fstat(file.fileno()).st_size) > INDEX_MOST:
            raise Refused(f"{INDEX}: {size:,} bytes, and at most {INDEX_MOST:,} are read")
        content = records.loads(file.read(INDEX_MOST), INDEX)
    if not isinstance(content, dict) or content.pop("digest", None) != digest_of(content):
        raise Refused(f"{INDEX}: not as it was written")
    return records.conform(content, Index, INDEX)


def _named(place: int) -> str:
    """The directory that the index names; "" if the index is missing or damaged."""
    try:
        return _index(place).name
    except (OSError, Refused):
        return ""


def _is(place: int, name: str, known: File) -> bool:
    """True if the file `name` has the size and the hash that are `known`."""
    with _reading(place, name) as file:
        if os.fstat(file.fileno()).st_size != known.size:
            return False
        hasher = xxhash.xxh3_128()
        while piece := file.read(PIECE):
            hasher.update(piece)
    return hasher.hexdigest() == known.digest


def _write(place: int, name: str, run: Run) -> dict[str, File]:
    """Writes the tables of `run` into the new directory `name`; returns the size and hash of each file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    os.mkdir(name, dir_fd=place)
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
    try:
        write_file(inner, MARK, MARK_TEXT)
        files = {}
        large = _large({table: len(run.tables[table]["name"]) for table in STORED})
        small = [piece for table in PAYLOAD for piece in packed(run.trees[table], LEAVES)]
        small += [
            piece
            for table in STORED
            if table not in large
            for piece in packed(run.tables[table], STORED[table])
        ]
        for own, content in ((ROWS, b"".join(small)), (STATED, run.stated.text or b"")):
            files[own] = File(len(content), xxhash.xxh3_128_hexdigest(content))
            write_file(inner, own, content)
        for table in large:
            columns, dtypes = run.tables[table], STORED[table]
            arrays = {
                key: pa.array(columns[key], pa.binary() if dtypes[key] == "object" else None)
                for key in dtypes
            }
            sink = pa.BufferOutputStream()
            pq.write_table(
                pa.table(arrays), sink, row_group_size=GROUP, compression="lz4",
                use_dictionary=[key for key in ("repeat", "step", "name", "occurrence", "seq", "rank", "ranks",
                                                "count") if key in dtypes],
                write_statistics=False,
            )  # fmt: skip
            parquet = memoryview(sink.getvalue())
            files[f"{table}.parquet"] = File(len(parquet), xxhash.xxh3_128_hexdigest(parquet))
            write_file(inner, f"{table}.parquet", parquet)
        return files
    finally:
        os.close(inner)


def _write_index(place: int, index: Index) -> None:
    """Replaces index.json by `index` atomically."""
    content = json.loads(json.dumps(msgspec.structs.asdict(index), default=_plain))
    text = json.dumps(content | {"digest": digest_of(content)}).encode()
    draft = f"index-{secrets.token_hex(8)}"
    try:
        write_file(place, draft, text)
        os.replace(draft, INDEX, src_dir_fd=place, dst_dir_fd=place)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=place)
        raise


def write_file(place: int, name: str, content: bytes | memoryview) -> None:
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=place)
    with open(handle, "wb") as file:
        file.write(content)


def _old(place: int, name: str) -> bool:
    try:
        return time.time() - os.stat(name, dir_fd=place, follow_symlinks=False).st_mtime > OLD_S
    except OSError:
        return False


def _remove(place: int, name: str) -> None:
    """Removes the directory `name` if this user owns it and it has the mark.

    Removes the files that this program writes, then the directory, unless other files are in it."""
    with contextlib.suppress(OSError, Refused):
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
        try:
            with _reading(inner, MARK) as file:
                if os.fstat(inner).st_uid != os.geteuid() or file.read(len(MARK_TEXT) + 1) != MARK_TEXT:
                    return
            for own in (*FILES, MARK):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(own, dir_fd=inner)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=place)


def _rows(kept: Path, index: Index) -> dict[str, Rows]:
    tables, large = {}, _large(index.lengths)
    begin = sum(size(LEAVES, leaves) for leaves in index.leaves.values())
    for table in STORED:
        length, dtypes = index.lengths[table], STORED[table]
        if table in large:
            tables[table] = Rows(length, dtypes, path=kept / f"{table}.parquet")
            continue
        tables[table] = Rows(length, dtypes, path=kept / ROWS, begin=begin, width=index.width)
        begin += size(dtypes, length, index.width)
    return tables


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, File):
        return msgspec.structs.asdict(value)
    raise TypeError(f"{type(value).__name__} cannot be kept in {INDEX}")
