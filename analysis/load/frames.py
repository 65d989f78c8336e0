"""Traces to pandas frames."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.load.assemble import PAYLOAD, Run, assemble
from analysis.load.find import find_runs, labels
from analysis.load.rankfile import read_rank

POOL_FROM = 33  # files: below, starting processes costs more than it saves

COLUMNS = {
    "events": {"repeat": "int32", "rank": "int32", "step": "int32", "name": "name", "count": "int64",
               "total_ns": "int64", "exclusive_ns": "int64", "bytes": "int64"},
    "values": {"repeat": "int32", "step": "int32", "name": "name", "block": "int32", "occurrence": "int32",
               "seq": "int32", "rank": "int32", "value": "float64"},
    "fingerprints": {"repeat": "int32", "step": "int32", "name": "name", "block": "int32",
                     "occurrence": "int32", "seq": "int32", "rank": "int32", "hi": "uint64", "lo": "uint64"},
    "order": {"repeat": "int32", "step": "int32", "name": "name", "occurrence": "int32", "ranks": "object"},
}  # fmt: skip
RUNS = {"run": "str", "repeat": "int32", "path": "str", "run_id": "str", "allocation_id": "str", "app": "str",
        "problem": "str", "size": "int32", "guarantee": "str", "ordering": "str", "seed": "int64",
        "complete": "bool", "last_step": "int32", "state": "str", "wall_s": "float64", "events": "int64",
        "tracing_s": "float64", "started": "str", "method": "str", "config": "str",
        "environment": "str", "promises": "str"}  # fmt: skip
EXCLUDED = ("run", "what", "path", "reason", "kept")


@dataclass(frozen=True)
class Frames:
    """What was read. Columns and types are in RUNS, COLUMNS and EXCLUDED; docs/analysis.md says what they
    mean.

    `runs` has one row per (run, repeat); the others carry `run` and `repeat` as keys into it. `run` and
    `name` are categoricals with the same categories in all frames. `values` and `fingerprints` are sorted by
    run, repeat, step, name (by code), occurrence and block.
    """

    runs: pd.DataFrame
    events: pd.DataFrame
    values: pd.DataFrame
    fingerprints: pd.DataFrame
    order: pd.DataFrame
    excluded: pd.DataFrame

    def of(self, table: str, run: str, repeat: int) -> pd.DataFrame:
        """The rows of one (run, repeat) of `table`."""
        return getattr(self, table).iloc[self._places(table)[0].get((run, repeat), slice(0, 0))]

    def steps(self, table: str, run: str, repeat: int, name: str) -> dict[int, slice]:
        """{step: rows of `table`} that one (run, repeat) recorded as `name`; of `values` or
        `fingerprints`."""
        return self._places(table)[1].get((run, repeat), {}).get(name, {})

    def _places(self, table: str) -> tuple[dict, dict]:
        # Frames are immutable and rows that belong together lie together, so that places are found once.
        known = self.__dict__.setdefault("_known", {})
        if table not in known:
            known[table] = _find_places(getattr(self, table), table in PAYLOAD)
        return known[table]


def _find_places(frame: pd.DataFrame, sorted_by_name: bool) -> tuple[dict, dict]:
    """({(run, repeat): rows}, {(run, repeat): {name: {step: rows}}}) with rows as slices."""
    run, repeat = frame["run"].cat.codes.to_numpy(), frame["repeat"].to_numpy()
    step, name = frame["step"].to_numpy(), frame["name"].cat.codes.to_numpy()
    runs, names = frame["run"].cat.categories, frame["name"].cat.categories
    whole = {(runs[run[i]], int(repeat[i])): slice(i, j) for i, j in _pieces(run, repeat)}
    parts: dict = {}
    if sorted_by_name:
        for i, j in _pieces(run, repeat, step, name):
            by_name = parts.setdefault((runs[run[i]], int(repeat[i])), {})
            by_name.setdefault(names[name[i]], {})[int(step[i])] = slice(i, j)
    return whole, parts


def _pieces(*columns: np.ndarray) -> Iterator[tuple[int, int]]:
    """(begin, end) of each stretch of rows that are equal in all `columns`."""
    if not len(columns[0]):
        return iter(())
    new = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return itertools.pairwise([0, *(np.flatnonzero(new) + 1).tolist(), len(columns[0])])


def load(paths: Iterable[str | os.PathLike], processes: int | None = None, copies: bool = False) -> Frames:
    """The runs that `paths` name: directories of runs, directories to search, or glob patterns.

    More than 32 files are read by `processes` processes (None: one per core that this process may use). What
    cannot be used or is doubtful is in `excluded`; so is the second directory of one launch, which is not
    another sample, unless `copies` are wanted. Raises NoRuns for a path without runs.
    """
    directories = find_runs(paths)
    files = [sorted(directory.glob("rank-*.h5")) for directory in directories]
    codes: dict[str, int] = {}
    runs: list[Run] = []
    with _reader(sum(map(len, files)), processes) as read:
        stream = read(itertools.chain.from_iterable(files))
        # One run at a time, so that what several ranks recorded alike is in memory once.
        for label, directory, names in zip(labels(directories), directories, files, strict=True):
            runs.append(assemble(label, directory, list(itertools.islice(stream, len(names))), codes))
    if not copies:
        _exclude_copies(runs)
    return _frames(runs, list(codes))


@contextmanager
def _reader(files: int, processes: int | None) -> Iterator:
    """A function that maps paths to what `read_rank` returns, in order; with a pool where it pays."""
    processes = processes or len(os.sched_getaffinity(0))
    if files < POOL_FROM or processes == 1:
        yield lambda paths: map(read_rank, paths)
        return
    context = multiprocessing.get_context("spawn")  # HDF5 and threads do not survive a fork
    with ProcessPoolExecutor(min(processes, files), mp_context=context) as pool:
        yield lambda paths: pool.map(read_rank, paths, chunksize=4)


def _exclude_copies(runs: list[Run]) -> None:
    """Only the first of several directories of one launch counts: a copy is not another sample."""
    first: dict[str, Path] = {}
    for run in runs:
        if not run.rows:
            continue
        run_id = run.rows[0]["run_id"]
        if run_id in first:
            reason = (
                f"{run.path}: a copy of {first[run_id]} (run id {run_id}), which is no other sample; give one"
            )
            run.note("copy", run.path, reason, "nothing")
            run.rows, run.tables = [], {}
        first.setdefault(run_id, run.path)


def _frames(runs: list[Run], names: list[str]) -> Frames:
    used = [run for run in runs if run.rows]
    return Frames(
        runs=pd.DataFrame([row for run in used for row in run.rows], columns=list(RUNS)).astype(RUNS),
        excluded=pd.DataFrame(
            [
                (run.label, what, str(path), reason, kept)
                for run in runs
                for what, path, reason, kept in run.notes
            ],
            columns=list(EXCLUDED),
        ).astype("str"),
        **{table: _frame(table, used, names) for table in COLUMNS},
    )


def _frame(table: str, runs: list[Run], names: list[str]) -> pd.DataFrame:
    lengths = [len(run.tables[table]["repeat"]) for run in runs]
    columns: dict[str, object] = {
        "run": pd.Categorical.from_codes(
            np.repeat(np.arange(len(runs)), lengths), [run.label for run in runs]
        )
    }
    for column, dtype in COLUMNS[table].items():
        pieces = [run.tables[table].pop(column) for run in runs]
        rows = np.concatenate(pieces) if pieces else np.empty(0, "int32" if dtype == "name" else dtype)
        columns[column] = (
            pd.Categorical.from_codes(rows, names) if dtype == "name" else rows.astype(dtype, copy=False)
        )
    return pd.DataFrame(columns)
