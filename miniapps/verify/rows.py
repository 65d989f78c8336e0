"""The recorded states and results of a run, as rows that do not depend on ranks, and their first difference."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

import numpy as np

from miniapps.trace.chain import TABLES, counted
from miniapps.trace.reader import RankTrace, read_run

KEY = ("table", "step", "name", "block", "occurrence")
OTHER, ALONE, MISSING = "other bits", "not recorded when executed again", "not recorded by the run"


@dataclass(frozen=True)
class Difference:
    """The first row in which a run and its second execution differ; `differing` of `recorded` rows do."""

    step: int
    name: str
    block: int
    what: str
    differing: int
    recorded: int

    def __str__(self) -> str:
        block = f", block {self.block}" if self.block >= 0 else ""
        return f"step {self.step}, {self.name}{block}"


@dataclass(frozen=True)
class Rows:
    """The rows of one repeat: KEY, `hi`, `lo` (the bits, or a hash of them), and `when`, which sorts the rows of a step
    by the time of recording. `name` is an index of `names`."""

    names: list[str]
    columns: dict[str, np.ndarray]

    def between(self, after: int, until: int) -> Rows:
        """The rows of the steps `after` < step <= `until`."""
        step = self.columns["step"]
        keep = (step > after) & (step <= until)
        return Rows(self.names, {key: column[keep] for key, column in self.columns.items()})

    def __len__(self) -> int:
        return len(self.columns["step"])


def rows_of(run: str | os.PathLike, repeat: int) -> Rows:
    """Reads the rows of a repeat of the directory `run`, of all ranks. Raises TraceError."""
    names: dict[str, int] = {}
    parts = [
        _of_table(trace, table, repeat, names)
        for trace in read_run(run, tables=TABLES)
        for table in range(len(TABLES))
    ]
    columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    sorting = [columns[key] for key in ("block", "name", "step", "table")]
    order = np.lexsort(sorting)
    columns = {key: column[order] for key, column in columns.items()}
    new = np.ones(len(order), bool)
    if len(order):
        new[1:] = np.any([np.diff(columns[key]) != 0 for key in ("block", "name", "step", "table")], axis=0)
    first = np.flatnonzero(new)
    columns["occurrence"] = np.arange(len(order)) - np.repeat(first, np.diff([*first, len(order)]))
    return Rows(list(names), columns)


def first_difference(run: Rows, again: Rows) -> Difference | None:
    """The first row that differs between `run` and `again`, or that only one of them has; None if all agree."""
    keys = [_keys(rows, rows.names) for rows in (run, again)]
    known = {key: place for place, key in enumerate(keys[1])}
    there = [known.pop(key, -1) for key in keys[0]]
    places = np.array(there, np.int64)
    both = places >= 0
    mine, theirs = run.columns, again.columns
    equal = both.copy()
    for word in ("hi", "lo"):
        equal[both] &= mine[word][both] == theirs[word][places[both]]
    wrong = [
        (*_when(run, place), OTHER if both[place] else ALONE) for place in np.flatnonzero(~equal).tolist()
    ]
    wrong += [(*_when(again, place), MISSING) for place in known.values()]
    if not wrong:
        return None
    step, _, _, block, name, what = min(wrong)
    return Difference(step, name, block, what, len(wrong), len(run) + len(known))


def _when(rows: Rows, place: int) -> tuple[int, int, int, int, str]:
    columns = rows.columns
    step, when, table, block = (int(columns[key][place]) for key in ("step", "when", "table", "block"))
    return step, when, table, block, rows.names[columns["name"][place]]


def _keys(rows: Rows, names: list[str]) -> list[tuple]:
    columns = (rows.columns[key].tolist() for key in KEY)
    return [
        (table, step, names[name], block, k) for table, step, name, block, k in zip(*columns, strict=True)
    ]


def _of_table(trace: RankTrace, table: int, repeat: int, names: dict[str, int]) -> dict[str, np.ndarray]:
    columns = trace.tables[TABLES[table]]
    kept = np.array([counted(name) for name in trace.names] or [False])
    here = np.flatnonzero(
        (columns["repeat"] == repeat) & kept[columns["name"]] if len(columns["name"]) else []
    )
    codes = np.array([names.setdefault(name, len(names)) for name in trace.names] or [0])
    n = len(here)
    hi, lo = np.zeros(n, np.uint64), np.zeros(n, np.uint64)
    step = columns["step"][here].astype(np.int64)
    if TABLES[table] == "fingerprints":
        hi, lo = columns["hi"][here].astype(np.uint64), columns["lo"][here].astype(np.uint64)
    elif TABLES[table] == "values":
        hi = np.ascontiguousarray(columns["value"][here], np.float64).view(np.uint64)
    else:
        texts = [np.ascontiguousarray(row, "<u2").tobytes() for row in columns["ranks"][here]]
        words = np.frombuffer(b"".join(hashlib.sha256(text).digest()[:16] for text in texts), "<u8").reshape(
            -1, 2
        )
        hi, lo = words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64)
    block = columns["block"][here].astype(np.int64) if "block" in columns else np.full(n, -1)
    when = np.full(n, 2**62)
    if "after" in columns and n:  # how many events of the step had ended on the recording rank
        after = columns["after"][here].astype(np.int64)
        steps, place = np.unique(step, return_inverse=True)
        least = np.full(len(steps), 2**62)
        np.minimum.at(least, place, after)
        when = after - least[place]
    return {
        "table": np.full(n, table),
        "step": step,
        "name": codes[columns["name"][here]] if n else np.empty(0, np.int64),
        "block": block,
        "hi": hi,
        "lo": lo,
        "when": when,
    }
