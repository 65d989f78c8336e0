"""Reads trace files into NumPy columns; knows nothing of applications, MPI or pandas."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from miniapps.trace.schema import FORMAT, JSON_ATTRIBUTES, SCHEMA, SINCE, TABLES, TraceError, rank_file


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


def read(path: str | os.PathLike, tables: Iterable[str] | None = None) -> RankTrace:
    """Read one `rank-*.h5`: the attributes, and the given `tables` (all of events, values, fingerprints,
    order where None, none where empty).

    Raises TraceError, naming the file and the remedy, when it is missing, not HDF5, damaged, not a trace or
    of a newer schema.
    """
    import h5py

    path = Path(path)
    wanted = list(TABLES) if tables is None else list(tables)
    if unknown := [table for table in wanted if table not in TABLES]:
        raise ValueError(f"no table {', '.join(unknown)} in a trace; the tables are {', '.join(TABLES)}")
    if not path.is_file():
        raise TraceError(f"{path}: no such file; give a rank-*.h5 of a run")
    try:
        with h5py.File(path, "r") as file:
            attributes = _attributes(path, file)
            order = list(file["committed"].attrs["tables"])
            rows, tail_rows = (
                dict(zip(order, counts, strict=True)) for counts in file["committed"][:].tolist()
            )
            columns = {}
            for table in wanted:
                columns[table] = {
                    column: _column(file, table, column, rows[table], tail_rows[table])
                    for column in TABLES[table]
                }
            names = [name.decode() for name in file["names"][: rows["names"]]]
            _check(columns, names)
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise TraceError(
            f"{path}: damaged or truncated, it cannot be read ({_first_line(error)}); copy it again from "
            "where the run wrote it, or leave this run out"
        ) from error
    return RankTrace(path, attributes, names, columns)


def rank_files(run: str | os.PathLike) -> list[Path]:
    """The trace files of all ranks of the directory `run`, rank 0 first.

    Raises TraceError when there are none or when the file of a rank is missing.
    """
    run = Path(run)
    found = sorted(path for path in run.glob("rank-*.h5") if re.fullmatch(r"rank-\d{5,}\.h5", path.name))
    if not found:
        raise TraceError(
            f"{run}: no rank-*.h5 in it; give the directory of a run (the RUN line of its output)"
        )
    size = read(found[0], tables=()).attributes["size"]
    expected = [run / rank_file(rank) for rank in range(size)]
    if missing := [path.name for path in expected if path not in found]:
        shown = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
        raise TraceError(
            f"{run}: a run of {size} ranks without {shown}; copy the whole directory, or leave it out"
        )
    return expected


def _attributes(path: Path, file) -> dict[str, Any]:
    attributes = {key: _plain(value) for key, value in file.attrs.items()}
    if attributes.get("format") != FORMAT:
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
    attributes["tracer"] = {key: _plain(value) for key, value in file["tracer"].attrs.items()}
    return attributes


def _column(file, table: str, column: str, rows: int, tail_rows: int) -> np.ndarray:
    """The committed rows of a column: those in full chunks, then those of the tail; -1 where the file's schema has no
    such column."""
    if SINCE.get(column, 0) > file.attrs["schema"]:
        return np.full(rows + tail_rows, -1, TABLES[table][column])
    main = file[table][column][:rows]
    tail = file["tail"][table][column][:tail_rows]
    if (len(main), len(tail)) != (rows, tail_rows):
        raise ValueError(f"{table}/{column} has {len(main) + len(tail)} of {rows + tail_rows} committed rows")
    return np.concatenate([main, tail]) if tail_rows else main


def _check(columns: dict[str, dict[str, np.ndarray]], names: list[str]) -> None:
    for table, arrays in columns.items():
        if len(arrays["name"]) and not 0 <= arrays["name"].min() <= arrays["name"].max() < len(names):
            raise ValueError(f"{table}/name points outside the {len(names)} names")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
