"""The distribution of lookups over rows, as far as costs depend on it: a few numbers for any table."""

from __future__ import annotations

from typing import Any

import numpy as np

from miniapps.embeddings.sharding import Table
from miniapps.trace.records import (
    ASKED_CLASS,
    ASKED_COLUMNS,
    ASKED_LOOKUPS,
    ASKED_ROWS,
    ASKED_SAMPLES,
    ASKED_SHARES,
)  # fmt: skip


def classes(counts: np.ndarray) -> np.ndarray:
    """float64 (n, 2): for each class of rows whose `counts` (rows,) have the same power of two, the number of rows and
    their share of all lookups. If nothing was looked up, it is one row with share 1."""
    seen = counts[counts > 0]
    if not len(seen):
        return np.array([[1.0, 1.0]])
    order = np.floor(np.log2(seen)).astype(int)
    rows, lookups = np.bincount(order), np.bincount(order, seen)
    kept = rows > 0
    return np.stack([rows[kept].astype(float), lookups[kept] / seen.sum()], axis=1)


def shares(counts: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """float64 (blocks,): the share of all lookups by block of rows; equal shares if nothing was looked up."""
    of_block = np.add.reduceat(counts, starts[:-1]).astype(float)
    total = of_block.sum()
    return of_block / total if total else np.full(len(of_block), 1.0 / len(of_block))


def described(table: Table, samples: int, steps: int, rows: np.ndarray) -> dict[str, Any]:
    """The lookups of a table in a step, as `miniapps.untrusted.lookups.Asked`, from all `rows` that were looked up in
    `steps` steps of `samples` samples."""
    counts = np.bincount(rows, minlength=table.rows)
    return {
        "name": table.name,
        "rows": table.rows,
        "columns": table.columns,
        "samples": float(samples),
        "lookups": len(rows) / steps,
        "classes": classes(counts).tolist(),
        "shares": shares(counts, table.starts).tolist(),
    }


def as_values(given: dict[str, Any]) -> dict[str, np.ndarray]:
    """The result of `described` as values of a trace, float64 (blocks,) by name."""
    classes = np.array(given["classes"])
    of_name = {
        ASKED_ROWS: [given["rows"]], ASKED_COLUMNS: [given["columns"]], ASKED_SAMPLES: [given["samples"]],
        ASKED_CLASS: classes[:, 0], ASKED_LOOKUPS: classes[:, 1] * given["lookups"], ASKED_SHARES: given["shares"],
    }  # fmt: skip
    return {f"{name}{given['name']}": np.array(numbers, float) for name, numbers in of_name.items()}
