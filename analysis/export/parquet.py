"""Writes the tables of runs as Parquet, for queries by DuckDB, Polars, pandas or R.

The directory has `runs.parquet`, a row per (run, repeat), and a file per table of `analysis.load.columns.STORED` with
`run` as the first column. Names are text, orders of arrival are lists of ranks. At most about GROUP rows are in memory,
besides runs that the loaded frames keep in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis.export.output import new_directory
from analysis.export.tables import texts
from analysis.load.columns import STORED
from analysis.load.frames import Frames
from analysis.load.watch import Watch
from miniapps.trace.schema import NAMED
from miniapps.untrusted.text import printable

if TYPE_CHECKING:
    import pyarrow as pa

PACKAGES = ()
OPEN_WITH = "query it with DuckDB, Polars or pandas"
GROUP = 2**18  # rows that are written together


def existing(out: Path) -> Path | None:
    """An existing path that `write` would overwrite; None if there is none."""
    return out if out.exists() else None


def write(frames: Frames, out: Path, watch: Watch) -> list[Path]:
    """Writes all tables of `frames` into the new directory `out`; returns its files. Raises OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with new_directory(out) as place:
        texts(frames.runs).to_parquet(place / "runs.parquet", index=False)
        runs = frames.runs["run"].drop_duplicates().tolist()
        names = pa.array(list(map(printable, frames.names)), pa.string())
        for k, (table, dtypes) in enumerate(STORED.items()):
            schema = pa.schema([("run", pa.string()), *((key, _type(key, of)) for key, of in dtypes.items())])
            with pq.ParquetWriter(place / f"{table}.parquet", schema, compression="zstd") as writer:
                pieces: list[pa.Table] = []
                for i, run in enumerate(runs):
                    watch.step(
                        k * len(runs) + i, len(STORED) * len(runs), f"{table} of run {i + 1} of {len(runs)}"
                    )
                    for piece in _rows(frames, table, run, names, schema):
                        pieces.append(piece)
                        if sum(map(len, pieces)) >= GROUP:
                            writer.write_table(pa.concat_tables(pieces), GROUP)
                            pieces = []
                writer.write_table(pa.concat_tables(pieces) if pieces else schema.empty_table(), GROUP)
        watch.clear()
    return sorted(out.glob("*.parquet"))


def _type(key: str, dtype: str) -> pa.DataType:
    import pyarrow as pa

    if key in NAMED:
        return pa.string()
    return pa.list_(pa.uint16()) if dtype == "object" else pa.from_numpy_dtype(np.dtype(dtype))


def _rows(frames: Frames, table: str, run: str, names: pa.Array, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yields the rows of all repeats of a run in pieces."""
    import pyarrow as pa

    pieces, codes = frames.store.pieces(table, run)
    for columns in pieces:
        arrays = {}
        for key in STORED[table]:
            rows = columns[key]
            if key in NAMED:
                arrays[key] = names.take(pa.array(codes[rows] if len(rows) else rows))
            elif key == "ranks":
                arrays[key] = pa.array([np.frombuffer(row, "<u2") for row in rows], schema.field(key).type)
            else:
                arrays[key] = pa.array(rows)
        count = len(columns["repeat"])
        yield pa.table({"run": pa.repeat(pa.scalar(printable(run)), count), **arrays}, schema)
