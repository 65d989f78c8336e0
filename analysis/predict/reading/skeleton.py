"""A traced run as a program: segments of work between waits, step after step.

All ranks run one program, on different numbers of blocks. The *key* of a segment is the wait before it, the wait after
it, its region, and whether it belongs to the first step, which includes work done once. All segments of one key cost
a + b w on a rank with w of the work (`costs.segments`). Iterations need no term: each has its own segments.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from analysis.load.guard import read_run
from analysis.load.timeline import partners, timeline
from analysis.predict.reading.measured import hash_of_run, require_forward, timed
from analysis.waiting.waits import Unmatched, Waits, waits
from analysis.waiting.within import between
from miniapps.layout.owners import contiguous_owner
from miniapps.trace import TraceError
from miniapps.trace.records import MARGIN
from miniapps.trace.schema import COMPUTE, CPU_TIME, THREAD_TIME

ITERATIONS = "iterations"  # suffix of the names of values that count iterations
ROUNDS = 30  # of distributing stolen time, which converges after a few
# Wait before, wait after ("" at the ends), region, whether in the first step. Work inside a wait has that wait as both.
Key = tuple[str, str, str, bool]


@dataclass(frozen=True)
class Skeleton:
    """One repeat of a run. `work` of a step: the product of `sizes`, the options that set the size of the problem;
    `blocks`: number of blocks, 0 if the run does not say.

    `waits`, a row per wait of all ranks: `name`, `kind`, `step`, `bytes` (mean over ranks), `own` (ns of the quickest
    rank's communication). `order`: (row of `waits`, whether it posts, whether it ends) in a possible order of events.
    `segments`, a row per segment: `wait`, a row of `waits`: the segment is before its post or, if `inside`, before its
    end, and -1 stands for the time after the last wait of a step; `step`, `key`, `ns` (mean over ranks, less the time
    that other processes took), `bytes` (mean over ranks, from events of computation). `cpu_s` (mean over ranks, NaN if
    not recorded) and `wall_s` of a step; `repeats`: both for every repeat of the run; `iterations` {step: iterations
    of each of its solves}."""

    path: str
    attributes: Mapping[str, Any]
    size: int
    steps: np.ndarray
    work: float
    blocks: int
    waits: pd.DataFrame
    order: list[tuple[int, bool, bool]]
    segments: pd.DataFrame
    cpu_s: float
    wall_s: float
    hash: str
    repeats: Sequence[tuple[float, float]] = ()
    iterations: Mapping[int, Sequence[float]] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """The work of a rank."""
        return self.work / self.size


def skeleton(path: str | os.PathLike, repeat: int = 0) -> Skeleton:
    """The program of one repeat of the run `path`. Raises TraceError if the run recorded no steps or no times, if its
    clocks are wrong, or if its ranks' waits do not match."""
    heads, begun, cpu, contributions = {}, None, [], 0
    every: dict[int, list[tuple[float, float]]] = {}
    iterations: dict[int, list[float]] = {}
    for trace in read_run(path, tables=["events", "usage", "values"]):
        head = trace.attributes
        rank = head["rank"]
        heads[rank] = head
        iterations |= _iterations(trace, repeat) if rank == 0 else {}
        _require_sound(trace, path)
        if not head["complete"]:
            raise TraceError(f"{path}: rank {rank} did not finish; give a complete run")
        if "regions" not in head:
            raise TraceError(
                f"{path}: the trace does not name the kinds of its regions; record the run again"
            )
        used, own = trace.tables["usage"], _used(trace, CPU_TIME, repeat)
        begun = own if begun is None else np.intersect1d(begun, own)
        threads = _rows(trace, THREAD_TIME, repeat)
        cpu.append(dict(zip(used["step"][threads].tolist(), used["value"][threads].tolist(), strict=True)))
        for number in np.unique(used["repeat"]).tolist():
            every.setdefault(number, []).append(_of_repeat(trace, number))
        stated = [each.get("contributions", 0) for each in head.get("reductions", {}).values()]
        contributions += max(stated, default=0)
    if begun is None or not len(begun):
        raise TraceError(
            f"{path}: repeat {repeat} recorded no steps with times; run it again without --trace off, with this "
            "version of the program"
        )
    first = heads[0]
    events = timeline(path, repeat, steps=begun.tolist())
    if events.empty:
        raise TraceError(
            f"{path}: repeat {repeat} recorded no events in its steps; run it again without --trace off"
        )
    try:
        waited = waits(events, first["size"], partners(path))
    except Unmatched as error:
        raise TraceError(f"{path}: {error}") from None
    listed, order = _listed(waited)
    segments = _segments(waited, listed, begun[0])
    stolen = _stolen(waited, cpu)
    segments["ns"] = _without(segments, stolen)
    mean = (
        segments.groupby(["wait", "inside", "step", "key"], sort=False)[["ns", "bytes"]].sum() / waited.size
    )
    counted = [np.mean([own[step] for own in cpu if step in own]) for step in begun.tolist() if cpu[0]]
    return Skeleton(
        os.fspath(path),
        first,
        first["size"],
        begun,
        work_of(first.get("config", {}), first.get("options", {})),
        contributions if contributions > first["size"] else 0,  # one per rank does not reveal blocks
        listed,
        order,
        mean.reset_index(),
        float(np.mean(counted)) if counted else math.nan,
        waited.wall / 1e9 / len(begun),
        hash_of_run(path),
        [
            (float(np.mean(c)), float(np.max(w)))
            for c, w in (zip(*own, strict=True) for own in every.values())
        ],
        iterations,
        sizes_of(first.get("config", {}), first.get("options", {})),
    )


def work_of(config: Mapping[str, Any], options: Mapping[str, Mapping[str, Any]]) -> float:
    """The product of the options that set the size of the problem."""
    return math.prod(sizes_of(config, options).values(), start=1.0)


def sizes_of(config: Mapping[str, Any], options: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """{option: value} of the options that set the size of the problem; the sum for a list."""
    sizes = {}
    for key, stated in options.items():
        section, _, name = key.partition(".")
        value = config.get(section, {}).get(name)
        if stated.get("effect") == "size" and value:
            sizes[key] = float(sum(value)) if isinstance(value, list | tuple) else float(value)
    return sizes


def shares_of(blocks: int, size: int) -> np.ndarray:
    """(size,) share of the work of each rank, by the blocks that it owns; equal if their number is unknown."""
    if not blocks:
        return np.full(size, 1.0 / size)
    return np.bincount(contiguous_owner(blocks, size), minlength=size) / blocks


def _require_sound(trace, path: str | os.PathLike) -> None:
    require_forward(trace, str(path))
    rank = trace.attributes["rank"]
    clocks = [trace.names.index(name) for name in (CPU_TIME, THREAD_TIME) if name in trace.names]
    used = trace.tables["usage"]["value"][np.isin(trace.tables["usage"]["name"], clocks)]
    if len(wrong := np.flatnonzero(~np.isfinite(used) | (used < 0))):
        raise TraceError(f"{path}: rank {rank}: a CPU time of {used[wrong[0]]} s; do not trust the times of this run, "
                         "and leave it out")  # fmt: skip


def _rows(trace, name: str, repeat: int) -> np.ndarray:
    used = trace.tables["usage"]
    number = trace.names.index(name) if name in trace.names else -1
    return (used["name"] == number) & (used["repeat"] == repeat)


def _iterations(trace, repeat: int) -> dict[int, list[float]]:
    """{step: iterations of each of its solves}, from the trace of one rank."""
    values = trace.tables["values"]
    named = [
        number
        for number, name in enumerate(trace.names)
        if name.endswith(ITERATIONS) and not name.startswith(MARGIN)
    ]
    own = np.isin(values["name"], named) & (values["repeat"] == repeat) & np.isfinite(values["value"])
    counts: dict[int, list[float]] = {}
    for step, value in zip(values["step"][own].tolist(), values["value"][own].tolist(), strict=True):
        counts.setdefault(step, []).append(value)
    return counts


def _of_repeat(trace, repeat: int) -> tuple[float, float]:
    """(CPU seconds, wall seconds) per step of one rank, NaN if not recorded."""
    steps, threads = _used(trace, CPU_TIME, repeat), _rows(trace, THREAD_TIME, repeat)
    threads &= np.isin(trace.tables["usage"]["step"], steps)
    events = trace.tables["events"]
    own = (events["repeat"] == repeat) & np.isin(events["step"], steps)
    if not own.any():
        return math.nan, math.nan
    wall = float(events["end"][own].max() - events["start"][own].min()) / 1e9 / len(steps)
    used = trace.tables["usage"]["value"][threads]
    return (float(used.mean()) if len(used) else math.nan), wall


def _used(trace, name: str, repeat: int) -> np.ndarray:
    return timed(np.unique(trace.tables["usage"]["step"][_rows(trace, name, repeat)]))


def _listed(waited: Waits) -> tuple[pd.DataFrame, list[tuple[int, bool, bool]]]:
    """(the waits, a row for all ranks; the order, with row numbers of the waits)."""
    table = waited.table
    if table.empty:
        return pd.DataFrame(columns=["name", "kind", "step", "bytes", "own"]), []
    kinds = waited.events.drop_duplicates("name").set_index("name")["kind"].astype(str)
    by = table.groupby("group", sort=True)
    listed = pd.DataFrame(
        {
            "name": by["name"].first().astype(str),
            "step": by["step"].first(),
            "bytes": by["bytes"].mean(),
            # The quickest rank waited for nobody: its time is communication alone.
            "own": by["own"].min(),
        }
    )
    listed["kind"] = listed["name"].map(kinds.rename(str))
    places = dict(zip(listed.index.tolist(), range(len(listed)), strict=True))
    return listed.reset_index(drop=True), [(places[g], posts, ends) for g, posts, ends in waited.order]


def _segments(waited: Waits, listed: pd.DataFrame, first: int) -> pd.DataFrame:
    """A row per rank, segment and region: `rank`, `wait`, `inside`, `step`, `key`, `ns`, `bytes`; `first`: the number
    of the first step."""
    names = listed["name"].tolist()
    pieces = []
    for rank in range(waited.size):
        own = waited.table[waited.table["rank"] == rank]
        times = _edges(waited, rank, own)
        parts = between(waited, rank, times["begin"].to_numpy(), times["end"].to_numpy())
        parts = _with_bytes(parts, waited, rank, times)
        parts = parts.join(times[["wait", "inside", "step", "before", "after"]], on="interval")
        key = parts["before"], parts["after"], parts["name"], parts["step"] == first
        parts["key"] = list(zip(*key, strict=True))
        columns = ["rank", "wait", "inside", "step", "key", "name", "ns", "bytes"]
        pieces.append(parts.assign(rank=rank)[columns])
        # The local part of a wait: packing, adding the rank's own blocks. On one rank it is the whole wait.
        if waited.size == 1:
            local = pd.DataFrame(
                {
                    "rank": 0,
                    "wait": own["group"].to_numpy(),
                    "inside": True,
                    "step": own["step"].to_numpy(),
                    "key": [
                        (*[names[g]] * 3, step == first)
                        for g, step in zip(own["group"], own["step"], strict=True)
                    ],
                    "name": own["name"].astype(str).to_numpy(),
                    "ns": own["own"].to_numpy(),
                    "bytes": 0.0,
                }
            )
            pieces.append(local)
    whole = pd.concat(pieces, ignore_index=True)
    waiting = set(names)
    # On several ranks, time inside waits is communication, which the model predicts separately.
    return whole[~whole["name"].isin(waiting) | (whole["inside"] & (waited.size == 1))].drop(columns="name")


def _with_bytes(parts: pd.DataFrame, waited: Waits, rank: int, times: pd.DataFrame) -> pd.DataFrame:
    """`parts` with a column `bytes`: the bytes of a region's computation events that end in an interval of `times`."""
    events = waited.events.iloc[waited.of_rank(rank)]
    stated = events[(events["bytes"] > 0) & (events["kind"].astype(str) == COMPUTE)]
    at = np.searchsorted(times["begin"].to_numpy(), stated["end"].to_numpy(), side="left") - 1
    by = stated["bytes"].astype(float).groupby([at, stated["name"].astype(str).to_numpy()]).sum()
    found = by.reindex(pd.MultiIndex.from_frame(parts[["interval", "name"]])) if len(by) else None
    return parts.assign(bytes=0.0 if found is None else found.fillna(0.0).to_numpy())


def _edges(waited: Waits, rank: int, own: pd.DataFrame) -> pd.DataFrame:
    """The intervals of a rank between its waits and inside them: `begin`, `end`, `wait`, `inside`, `step`, `before`,
    `after`. A step begins with its first event."""
    own = own.sort_values(["start", "end"], kind="stable")
    rows = []
    by_step = dict(iter(own.groupby("step")))
    for step, begin, finish in _spans(waited, rank):
        now, before = begin, ""
        for row in by_step[step].itertuples(index=False) if step in by_step else ():
            name = str(row.name)
            if row.start > now:
                rows.append((now, int(row.start), row.group, False, step, before, name))
            if row.idle > row.start:
                rows.append((max(now, int(row.start)), int(row.idle), row.group, True, step, name, name))
            now, before = max(now, int(row.end)), name
        if finish > now:
            rows.append((now, finish, -1, False, step, before, ""))
    table = pd.DataFrame(rows, columns=["begin", "end", "wait", "inside", "step", "before", "after"])
    return table[table["end"] > table["begin"]].reset_index(drop=True)


def _spans(waited: Waits, rank: int) -> list[tuple[int, int, int]]:
    """(step, begin, end) of the steps of a rank: a step lasts until the first event of the next one."""
    events = waited.events.iloc[waited.of_rank(rank)]
    by = events.groupby("step")
    first = by["start"].min().sort_index()
    starts = first.to_numpy().tolist()
    return list(zip(first.index.tolist(), starts, [*starts[1:], int(events["end"].max())], strict=True))


def _stolen(waited: Waits, cpu: list[dict[int, float]]) -> dict[tuple[int, int], float]:
    """{(rank, step): ns that other processes took of its processor}; 0 if the thread's CPU time was not recorded. On
    several ranks it is a lower bound, since ranks also use the processor while they wait.

    Work of a step before its first event is in its CPU time, but in the span of the previous step. So CPU time beyond a
    step's span belongs to the end of the previous step's span."""
    taken = {}
    for rank in range(waited.size):
        ahead = 0.0
        for step, begin, end in reversed(_spans(waited, rank)):
            idle = end - begin - cpu[rank].get(step, math.inf) * 1e9 - ahead
            taken[rank, step], ahead = max(0.0, idle), max(0.0, -idle) if math.isfinite(idle) else 0.0
    return taken


def _without(segments: pd.DataFrame, stolen: Mapping[tuple[int, int], float]) -> np.ndarray:
    """The ns of `segments` less the `stolen` time of their step. It comes first from segments that took longer than
    usual for their key, in proportion to their excess; the rest from all segments, in proportion to their time."""
    ns = segments["ns"].to_numpy(float)
    step, names = pd.factorize(pd.MultiIndex.from_frame(segments[["rank", "step"]]))
    taken = np.array([stolen.get((int(r), int(s)), 0.0) for r, s in names])
    if not taken.any():
        return ns
    taken = np.minimum(taken, 0.999 * np.bincount(step, ns))
    keys = pd.factorize(segments["key"])[0]
    usual = pd.Series(ns).groupby(keys).quantile(0.1).to_numpy()
    clean = ns
    for _ in range(ROUNDS):
        excess = np.maximum(ns - usual[keys], 0.0)
        whole = np.bincount(step, excess)
        part = np.divide(np.minimum(taken, whole), whole, out=np.zeros_like(whole), where=whole > 0)
        left = taken - np.minimum(taken, whole)
        clean = ns - excess * part[step]
        rest = np.bincount(step, clean)
        clean = clean * (1.0 - np.divide(left, rest, out=np.zeros_like(rest), where=rest > 0))[step]
        usual = pd.Series(clean).groupby(keys).median().to_numpy()
    return clean


def label(run: Skeleton) -> str:
    """The name of a run and its number of ranks."""
    return f"{os.path.basename(os.path.normpath(run.path))} ({run.size} rank{'s' * (run.size > 1)})"
