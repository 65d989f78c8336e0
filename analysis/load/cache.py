"""What was read of a run, as Parquet beside it, so that it is read once.

RUN/.analysis/index.json says what was read by content (a hash of the bytes of every trace file and of result.json), and
by name, size and time of change, which are looked at first. The tables and the hash trees over them are in a directory
that is called by the content, so that a program that still reads an older one never sees another's rows. A cache that
does not fit is made anew; one that cannot be written is done without. It may be removed at any time.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import xxhash

from analysis.load.assemble import Run
from analysis.load.columns import PAYLOAD, STORED
from analysis.load.rows import Rows
from analysis.load.tree import LEAVES
from miniapps.trace import SCHEMA, read_image
from miniapps.trace.schema import TraceError

DIRECTORY = ".analysis"
VERSION = f"1 of schema {SCHEMA}"  # of what is kept: to be raised when that changes
GROUP = 16384  # rows that are read together: 0.2 % of ten million
RANDOM = ("hi", "lo", "keys")  # columns that no encoding makes smaller


def signature(directory: Path, files: list[Path]) -> str:
    """Hash of name, size and time of change of the `files` of a run and of its result.json."""
    words = []
    for path in (*files, directory / "result.json"):
        with contextlib.suppress(OSError):
            found = path.stat()
            words.append(f"{path.name} {found.st_size} {found.st_mtime_ns}")
    return xxhash.xxh3_128_hexdigest("\n".join(words).encode())


def content(directory: Path, files: list[Path], digests: list[str] | None = None) -> str:
    """Hash of the bytes of the `files` of a run, whose `digests` may be known, and of its result.json."""
    if digests is None:
        digests = []
        for path in files:
            with contextlib.suppress(TraceError):
                digests.append(xxhash.xxh3_128_hexdigest(read_image(path)))
    result = b""
    with contextlib.suppress(OSError):
        result = (directory / "result.json").read_bytes()
    words = [*(path.name for path in files), *digests, xxhash.xxh3_128_hexdigest(result)]
    return xxhash.xxh3_128_hexdigest("\n".join(words).encode())


def load(directory: Path, files: list[Path], signed: str) -> tuple[Run, dict[str, Rows]] | None:
    """The run in `directory` and its tables from the cache; None where that is missing or does not fit. `signed` is
    the `signature` of its trace `files`."""
    import pyarrow.parquet as pq

    place = directory / DIRECTORY
    try:
        index = json.loads((place / "index.json").read_text(encoding="utf-8"))
        if index["version"] != VERSION or index["path"] != str(directory):
            return None
        if index["signature"] != signed:
            if index["content"] != content(directory, files):
                return None
            _write_index(place, index | {"signature": signed})
        place = place / index["content"]
        run = Run(directory, index["rows"], index["names"], notes=[tuple(note) for note in index["notes"]])
        tables = {}
        for table, length in index["lengths"].items():
            path = place / f"{table}.parquet"
            if path.stat().st_size != index["sizes"][table]:
                return None
            tables[table] = Rows(length, STORED[table], path=path)
        for table in PAYLOAD:
            found = pq.read_table(place / f"{table}-tree.parquet", use_threads=False)
            run.trees[table] = {key: found.column(key).to_numpy() for key in LEAVES}
    except (OSError, ValueError, KeyError, TypeError):  # ArrowInvalid is a ValueError
        return None
    return run, tables


def save(run: Run, files: list[Path], digests: list[str], signed: str) -> dict[str, Rows] | None:
    """Write the cache of `run`, and return its tables as they are on disk; None where it cannot be kept: where traces
    were unreadable, changed meanwhile, or where nothing can be written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    unreadable = any(what in ("unreadable", "no trace") for what, *_ in run.notes)
    if unreadable or signature(run.path, files) != signed:
        return None
    place, name = run.path / DIRECTORY, content(run.path, files, digests)
    temporary = None
    try:
        place.mkdir(exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix="part-", dir=place))
        for table, columns, dtypes in (
            *((table, run.tables[table], STORED[table]) for table in STORED),
            *((f"{table}-tree", run.trees[table], LEAVES) for table in PAYLOAD),
        ):
            arrays = {
                key: pa.array(columns[key], pa.binary() if dtypes[key] == "object" else None)
                for key in dtypes
            }
            pq.write_table(
                pa.table(arrays), temporary / f"{table}.parquet", row_group_size=GROUP, compression="lz4",
                use_dictionary=[key for key in ("repeat", "step", "name", "occurrence", "seq", "rank", "ranks",
                                                "count", "leaf") if key in dtypes],
                write_statistics=False,
            )  # fmt: skip
        lengths = {table: len(run.tables[table]["name"]) for table in STORED}
        sizes = {table: (temporary / f"{table}.parquet").stat().st_size for table in STORED}
        shutil.rmtree(place / name, ignore_errors=True)  # one that was damaged
        os.rename(temporary, place / name)
        index = {
            "version": VERSION, "path": str(run.path), "signature": signed, "content": name, "names": run.names,
            "rows": run.rows, "notes": run.notes, "lengths": lengths, "sizes": sizes,
        }  # fmt: skip
        _write_index(place, index)
        for old in place.iterdir():
            if old.is_dir() and old.name != name and not old.name.startswith("part-"):
                shutil.rmtree(old, ignore_errors=True)
    except OSError:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
        return None
    return {
        table: Rows(lengths[table], STORED[table], path=place / name / f"{table}.parquet") for table in STORED
    }


def _write_index(place: Path, index: dict) -> None:
    number, part = tempfile.mkstemp(prefix="index-", dir=place)
    with open(number, "w", encoding="utf-8") as file:
        json.dump(index, file, default=_plain)
    os.replace(part, place / "index.json")


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be kept in index.json")
