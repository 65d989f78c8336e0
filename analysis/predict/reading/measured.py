"""Measured times per step of runs, and the hash of a run.

A step counts if the run recorded its CPU time; work before the first and after the last such step does not count. No
step is dropped as a warm-up (the scaling study, which times whole repeats, does drop some). Step 0 includes the setup
of a repeat, so it is timed only if there is no other step (`timed`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.groups import CHOSEN, LAYOUT, conditions, grouped
from analysis.load.frames import Frames
from analysis.load.guard import read_run
from analysis.predict.reading.cores import cores_of
from analysis.runs import samples
from analysis.verdict import counted
from miniapps.trace import RankTrace, TraceError
from miniapps.trace.reader import trace_files
from miniapps.trace.schema import COLLECTIVE, COMPUTE, CPU_TIME, EXCHANGE, THREAD_TIME, WAIT
from miniapps.untrusted import open_regular
from miniapps.untrusted.prediction import method_hash

PIECE = 2**22  # bytes hashed at once
WAITING = (COLLECTIVE, EXCHANGE, WAIT)  # kinds of regions in which a rank waits for other ranks
POINTS = ("run", "repeat", "path", "app", "problem", "method", "alike", "size", "steps", "wall_s", "cpu_s", "waiting_s",
          "crowded", "rows", "head", "guarantee", "beside")  # fmt: skip
REGIONS = ("run", "repeat", "name", "seconds")


@dataclass(frozen=True)
class Measured:
    """`points`, a row per complete (run, repeat), columns POINTS, all times per step: `wall_s` of the slowest rank,
    `cpu_s` of the threads that run the application and `waiting_s` in collectives and exchanges, both means over ranks
    (`cpu_s` NaN if not recorded); `crowded`: whether the run had more ranks than cores; `rows` and `head` of the run's
    ledger, -1 and "" without one; `alike`, `beside`: the conditions of the run except the layout, or except the
    options that a guarantee sets. `regions`, a row per region, columns REGIONS: exclusive seconds per step, mean over
    ranks. `notes` name the runs left out, `refused` the runs whose times cannot be used, and why."""

    points: pd.DataFrame
    regions: pd.DataFrame
    notes: list[str]
    refused: list[str]


def measured(frames: Frames) -> Measured:
    """The times per step of the complete runs of `frames`."""
    runs = grouped(frames.runs)
    points: list[tuple] = []
    regions: list[tuple] = []
    notes, refused = [], []
    left_out = {
        "ended early": runs[~runs["complete"]],
        "had a fault injected": runs[runs["complete"] & runs["faulty"]],
        "compared variants, without steps": runs[runs["complete"] & ~runs["faulty"] & samples(runs)],
    }
    for why, own in left_out.items():
        if len(own):
            notes.append(f"{counted(len(own), 'run')} left out: {why}")
    runs["alike"] = conditions(runs, but=LAYOUT)
    runs["beside"] = conditions(runs, but=CHOSEN)
    good = runs[runs["complete"] & ~runs["faulty"] & ~samples(runs)]
    for run, own in good.groupby("run", sort=False):
        try:
            rows, more = _of_run(frames, str(run), own)
        except TraceError as error:
            refused.append(str(error))
            continue
        points += rows
        regions += more
    return Measured(
        pd.DataFrame(points, columns=list(POINTS)),
        pd.DataFrame(regions, columns=list(REGIONS)),
        notes,
        refused,
    )


def hash_of_run(run: str | os.PathLike) -> str:
    """SHA-256, in hex, of the trace files in the directory `run`: name, length and bytes of each, sorted by name.

    Raises TraceError if there are none, Refused or OSError for a file that cannot be read.
    """
    hasher = hashlib.sha256()
    files = trace_files(run)
    if not files:
        raise TraceError(f"{run}: no rank-*.h5; give the directory of a run")
    for path in files:
        with open_regular(path) as file:
            hasher.update(f"{path.name} {os.fstat(file.fileno()).st_size}\n".encode())
            while piece := file.read(PIECE):
                hasher.update(piece)
    return hasher.hexdigest()


def _of_run(frames: Frames, run: str, own: pd.DataFrame) -> tuple[list[tuple], list[tuple]]:
    """(rows of POINTS, rows of REGIONS) for the repeats `own` of one run."""
    path = own["path"].iloc[0]
    begun = _steps(frames, run, path)
    spans: dict[int, list[float]] = {repeat: [] for repeat in begun}
    known: set[str] = set()
    attributes: dict = {}
    environments = []
    for trace in read_run(path, tables=["events"]):
        attributes = trace.attributes
        known.add(json.dumps(attributes.get("ledger"), sort_keys=True))
        environments.append(attributes.get("environment", {}))
        require_forward(trace, path)
        events = trace.tables["events"]
        for repeat, steps in begun.items():
            here = (events["repeat"] == repeat) & np.isin(events["step"], steps)
            if here.any():
                spans[repeat].append(int(events["end"][here].max() - events["start"][here].min()) / 1e9)
    if len(known) > 1:
        raise TraceError(
            f"{path}: its ranks name different ledgers, so the traces were changed; copy them again"
        )
    ledger = attributes.get("ledger") or {"rows": -1, "head": ""}
    kinds = json.loads(own["regions"].iloc[0])
    crowded = own["size"].iloc[0] > (cores_of(environments) or math.inf)
    points, regions = [], []
    for row in own.itertuples(index=False):
        steps = begun.get(row.repeat, np.empty(0, int))
        if not len(steps) or not spans[row.repeat]:
            raise TraceError(
                f"{path}: repeat {row.repeat} recorded no steps with times; run it again without --trace off, with "
                "this version of the program"
            )
        seconds = _regions(frames, run, row.repeat, steps, int(row.size))
        waiting = sum(s for name, s in seconds.items() if kinds.get(name, COMPUTE) in WAITING)
        points.append(
            (run, row.repeat, path, row.app, row.problem, method_hash(attributes), row.alike, int(row.size), len(steps),
             max(spans[row.repeat]) / len(steps), _cpu(frames, run, row.repeat, steps), waiting, bool(crowded),
             ledger["rows"], ledger["head"], row.guarantee, row.beside)
        )  # fmt: skip
        regions += [(run, row.repeat, name, s) for name, s in seconds.items()]
    return points, regions


def _steps(frames: Frames, run: str, path: str) -> dict[int, np.ndarray]:
    """{repeat: steps begun}, for repeats whose ranks began the same steps."""
    usage = frames.usage
    mine = usage[(usage["run"] == run) & (usage["name"] == CPU_TIME)]
    if bad := mine[~np.isfinite(mine["value"]) | (mine["value"] < 0)].to_dict("records"):
        at = bad[0]
        raise TraceError(
            f"{path}: rank {at['rank']}, repeat {at['repeat']}, step {at['step']}: a CPU time of {at['value']} s; do "
            "not trust the times of this run"
        )
    begun = {}
    for repeat, own in mine.groupby("repeat"):
        by_rank = {tuple(rows["step"]) for _, rows in own.groupby("rank")}
        if len(by_rank) == 1:
            begun[int(repeat)] = timed(np.array(sorted(set(own["step"]))))
    return begun


def timed(steps: np.ndarray) -> np.ndarray:
    """The steps to time among the begun `steps` (n,): all but step 0, or step 0 if it is the only one. An application
    such as the solver begins a step 0 for its setup."""
    return steps[steps > 0] if (steps > 0).any() else steps


def require_forward(trace: RankTrace, path: str) -> None:
    """Raises TraceError if the clock of a rank ran backwards: an event ends before it starts, or before the previous
    event."""
    events, rank = trace.tables["events"], trace.attributes["rank"]
    start, end = events["start"], events["end"]
    wrong = np.flatnonzero((end < start) | np.append(False, np.diff(end) < 0))
    if len(wrong):
        k = int(wrong[0])
        where = f"repeat {events['repeat'][k]}, step {events['step'][k]}, {trace.names[events['name'][k]]}"
        raise TraceError(
            f"{path}: rank {rank}: its clock ran backwards in event {k} ({where}); do not trust the times of this run, "
            "and leave it out"
        )


def _cpu(frames: Frames, run: str, repeat: int, steps: np.ndarray) -> float:
    """CPU seconds of the application's thread per step, mean over steps and ranks; NaN if not recorded."""
    usage = frames.usage
    mine = usage[(usage["run"] == run) & (usage["repeat"] == repeat) & (usage["name"] == THREAD_TIME)]
    mine = mine[mine["step"].isin(steps)]
    return float(mine["value"].mean()) if len(mine) else np.nan


def _regions(frames: Frames, run: str, repeat: int, steps: np.ndarray, size: int) -> dict[str, float]:
    """{region: exclusive seconds per step, mean over ranks}."""
    events = frames.of("events", run, repeat)
    own = events[events["step"].isin(steps)]
    total = own.groupby("name", observed=True)["exclusive_ns"].sum()
    return {str(name): float(ns) / 1e9 / size / len(steps) for name, ns in total.items()}
