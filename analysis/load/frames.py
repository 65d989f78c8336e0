"""Reads traces into pandas frames."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.load import cache
from analysis.load.assemble import Run, assemble
from analysis.load.columns import STORED
from analysis.load.find import find_runs, labels
from analysis.load.guard import sizes
from analysis.load.ordering import assign_orderings
from analysis.load.pool import readers
from analysis.load.rows import Rows
from analysis.load.store import Id, Leaves, Source, Store
from analysis.load.watch import SILENT, Watch
from miniapps.trace import builds, trace_files
from miniapps.trace.schema import NAMED
from miniapps.untrusted.text import printable

TOGETHER, TOGETHER_BYTES = 32, 2**25  # most files that one task reads, and their most bytes
POOL_FROM = 33  # files from which a pool reads: for fewer, starting processes costs more than it saves

# {table: {column: dtype}} without the column `run`; "name" stands for a categorical of names.
COLUMNS = {
    table: {key: "name" if key in NAMED else dtype for key, dtype in columns.items()}
    for table, columns in STORED.items()
}
RUNS = {"run": "str", "repeat": "int32", "path": "object", "run_id": "str", "allocation_id": "str", "app": "str",
        "problem": "str", "size": "int32", "guarantee": "str", "ordering": "str", "seed": "int64",
        "complete": "bool", "last_step": "int32", "state": "str", "wall_s": "float64", "events": "int64",
        "tracing_s": "float64", "started": "str", "method": "str", "config": "str",
        "environment": "str", "promises": "str", "problem_options": "str", "options": "str", "regions": "str",
        "reductions": "str", "unseen": "str", "unreached": "str", "neighbours": "str"}  # fmt: skip
EXCLUDED = ("run", "what", "path", "reason", "kept")


@dataclass(frozen=True)
class Frames:
    """The contents of runs as frames. RUNS, COLUMNS and EXCLUDED list columns and types; docs/how-to/frames.md explains
    them.

    `runs` has one row per (run, repeat); the tables (`analysis.load.columns.STORED`) carry `run` and `repeat` as keys
    into it. A table is read on first use; `of`, `leaves` and `at` read only the rows that they return.
    `run`, `name`, `choice` and `dtype` are categoricals; the last three have the same categories. `values`,
    `fingerprints` and `sizes` are sorted by run, repeat, step, name (in the order in which the run first used names),
    occurrence and block.
    """

    runs: pd.DataFrame
    excluded: pd.DataFrame
    store: Store

    @functools.cached_property
    def memo(self) -> dict[tuple, Any]:
        """Results of functions marked `once` for these runs."""
        return {}

    @functools.cached_property
    def places(self) -> dict[Id, int]:
        """The place of each (run, repeat) in `runs`."""
        keys = zip(self.runs["run"], self.runs["repeat"].tolist(), strict=True)
        return {key: place for place, key in enumerate(keys)}

    @property
    def events(self) -> pd.DataFrame:
        """Events summed over (run, repeat, rank, step, name)."""
        return self.store.frame("events")

    @property
    def values(self) -> pd.DataFrame:
        """Every recorded number."""
        return self.store.frame("values")

    @property
    def fingerprints(self) -> pd.DataFrame:
        """Every recorded hash."""
        return self.store.frame("fingerprints")

    @property
    def sizes(self) -> pd.DataFrame:
        """The sizes of the arrays whose fingerprints were recorded."""
        return self.store.frame("sizes")

    @property
    def order(self) -> pd.DataFrame:
        """Every recorded order of arrival."""
        return self.store.frame("order")

    @property
    def choices(self) -> pd.DataFrame:
        """Decisions from a clock."""
        return self.store.frame("choices")

    @property
    def usage(self) -> pd.DataFrame:
        """The resources that each process used in each step, by its own clocks; never compared."""
        return self.store.frame("usage")

    @property
    def names(self) -> list[str]:
        """The categories of the columns `name`, `choice` and `dtype`."""
        return self.store.names

    def of(self, table: str, run: str, repeat: int) -> pd.DataFrame:
        """The rows of one (run, repeat) of `table`."""
        return self.store.of(table, run, repeat)

    def segment(self, table: str, run: str, repeat: int, name: str, step: int) -> pd.DataFrame:
        """The rows that one (run, repeat) recorded as `name` in `step`, of `values` or `fingerprints`."""
        return self.store.segment(table, run, repeat, name, step)

    def recorded(self, table: str, run: str, repeat: int) -> list[str]:
        """The names that one (run, repeat) recorded in `values` or `fingerprints`."""
        return [self.names[code] for code in np.unique(self.leaves(table, run, repeat).name).tolist()]

    def leaves(self, table: str, run: str, repeat: int) -> Leaves:
        """The hash tree over the rows of one (run, repeat) of `values` or `fingerprints`."""
        return self.store.leaves(table, run, repeat)

    def stated(self, run: str) -> list[dict[str, Any]]:
        """The facts that each rank of a run states beside its rows: `analysis.load.stated.KEPT`. Raises TraceError."""
        return self.store.stated(run)

    def columns(self, table: str, run: str, places: list[tuple[int, int]]) -> dict[str, np.ndarray]:
        """The rows of `at` as arrays, which are faster than frames for few rows; `name` has the codes of that run."""
        return self.store.columns(table, run, places)

    def at(self, table: str, run: str, places: list[tuple[int, int]]) -> pd.DataFrame:
        """The rows of `table` in `places`, as `Leaves.places` of that run returns them."""
        return self.store.at(table, run, places)


def once(function: Callable) -> Callable:
    """Decorates a function of frames and hashable arguments: it is called once per arguments, and its result is kept.

    Callers must not change the result."""

    @functools.wraps(function)
    def kept(frames: Frames, *arguments: Any) -> Any:
        key = (function, *arguments)
        if key not in frames.memo:
            frames.memo[key] = function(frames, *arguments)
        return frames.memo[key]

    return kept


def load(
    paths: Iterable[str | os.PathLike],
    processes: int | None = None,
    copies: bool = False,
    keep: bool = True,
    watch: Watch = SILENT,
) -> Frames:
    """Reads the runs that `paths` name: directories of runs, directories to search, or glob patterns.

    With `keep`, a run comes from the cache in its directory, or is written there (`analysis.load.cache`). Several
    processes read more than 32 files (`analysis.load.pool`). `excluded` lists what cannot be used or is doubtful. A
    second directory of one launch is not another sample: it is excluded too, unless `copies` is set. `watch` shows
    the progress. Raises NoRuns for a path without runs.
    """
    directories = [Path(path) for path in find_runs(paths)]
    runs: list[Run] = []
    tables: list[dict[str, Rows]] = []
    for run, own in _read(directories, processes, keep, watch):
        runs.append(run)
        tables.append(own)
    names = labels(directories)
    if not copies:
        _exclude_copies(runs)
    return _frames(runs, tables, names)


def _read(
    directories: list[Path], processes: int | None, keep: bool, watch: Watch
) -> Iterator[tuple[Run, dict[str, Rows]]]:
    """Each run with its tables, in order; one run at a time is in memory in full."""
    files = [trace_files(directory) for directory in directories]
    signed = [cache.signature(*run) for run in zip(directories, files, strict=True)]
    cached: list[tuple[Run, dict[str, Rows]] | None] = []
    took: list[float] = []
    for each in zip(directories, signed, strict=True):
        watch.step(len(took), len(files), f"looking at run {len(took) + 1} of {len(files)}")
        begin = time.perf_counter()
        cached.append(cache.load(*each) if keep else None)
        took.append(time.perf_counter() - begin)
    tasks = [list(tasks_of(own)) if known is None else [] for own, known in zip(files, cached, strict=True)]
    unread = sum(len(task) for own in tasks for task in own)
    watch.begin(unread, len(directories))
    with readers(1 if unread < POOL_FROM else sum(map(len, tasks)), processes) as reading:
        pieces = reading(task for own in tasks for task in own)
        for directory, own, known, names, signature, looked in zip(
            directories, tasks, cached, files, signed, took, strict=True
        ):
            if known is not None:
                watch.run(directory, True, looked)
                yield known
                continue
            begin = time.perf_counter()
            read = []
            for task, several in zip(own, pieces, strict=False):  # `pieces` goes on with the next runs
                read += several
                watch.read(len(task), {path: s for piece in several for path, s in piece.seconds.items()})
            run = assemble(directory, read)
            del read
            tables = cache.save(run, names, signature) if keep and run.rows else None
            if tables is None:
                tables = {
                    table: Rows(len(columns["name"]), STORED[table], columns)
                    for table, columns in run.tables.items()
                }
            run.tables = {}
            watch.run(directory, False, time.perf_counter() - begin)
            yield run, tables
    watch.clear()


def tasks_of(files: list[Path]) -> Iterator[list[Path]]:
    """Splits `files` into tasks, in order: lists of at most TOGETHER files and TOGETHER_BYTES."""
    task: list[Path] = []
    nbytes = 0
    for path in files:
        own = sizes([path])
        if task and (len(task) == TOGETHER or nbytes + own > TOGETHER_BYTES):
            yield task
            task, nbytes = [], 0
        task.append(path)
        nbytes += own
    if task:
        yield task


def _exclude_copies(runs: list[Run]) -> None:
    """Removes the rows of all but the first of several directories of one launch: a copy is not another sample."""
    first: dict[str, Path] = {}
    for run in runs:
        if not run.rows:
            continue
        run_id = run.rows[0]["run_id"]
        if run_id in first:
            here, other = (printable(str(path)) for path in (run.path, first[run_id]))
            reason = (
                f"{here}: a copy of {other} (run id {printable(run_id)}), which is no other sample; give one"
            )
            run.note("copy", here, reason, "nothing")
            run.rows = []
        first.setdefault(run_id, run.path)


def _called(runs: list[Run]) -> list[list[str]]:
    """The names of each run. Calls of another build get their names in the first run of the problem, and a note."""
    first: dict[str, Run] = {}
    called = []
    for run in runs:
        known = first.setdefault(run.rows[0]["problem"], run)
        renamed = builds.as_in(known.names, run.names) if known is not run else {}
        called.append([renamed.get(name, name) for name in run.names])
        if renamed:
            here, other = (printable(str(path)) for path in (run.path, known.path))
            reason = (
                f"{here}: its program was built otherwise than that of {other}: calls of each function are matched in "
                "the order in which they came; build both with -g to have them matched by line"
            )
            run.note("another build", here, reason, "everything")
    return called


def _frames(runs: list[Run], tables: list[dict[str, Rows]], names: list[str]) -> Frames:
    used = [(run, own, label) for run, own, label in zip(runs, tables, names, strict=True) if run.rows]
    called = _called([run for run, _, _ in used])
    known = list(dict.fromkeys(name for own in called for name in own))
    places = {name: place for place, name in enumerate(known)}
    sources = [
        Source(label, own, run.trees, np.array([places[name] for name in texts], np.int32), run.stated)
        for (run, own, label), texts in zip(used, called, strict=True)
    ]
    rows = [{"run": label, "path": str(run.path), **row} for run, _, label in used for row in run.rows]
    assign_orderings(rows)
    notes = [
        (label, what, path, reason, kept)
        for run, label in zip(runs, names, strict=True)
        for what, path, reason, kept in run.notes
    ]
    return Frames(
        # dtype object first: as "str" pandas takes text for UTF-8, which the name of a directory need not be.
        runs=pd.DataFrame(rows, columns=list(RUNS), dtype=object).astype(RUNS),
        excluded=pd.DataFrame(notes, columns=list(EXCLUDED)).astype("str"),
        store=Store(sources, known),
    )
