"""Finds the place in a file of data that a program under `fpna run` wrote or read, and judges differences there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.divergence.classes import FROM_INPUT, KERNEL, ORDER, Cause
from analysis.divergence.rounding import OPEN, Judgement
from analysis.divergence.scene import SHOWN, Scene, which_ranks
from analysis.load.guard import read_run
from miniapps.trace import RankTrace, TraceError
from miniapps.trace.records import OF_FILE, OFFSET, VIEW_OFFSET, WRITTEN

PLACES = (OF_FILE, OFFSET, VIEW_OFFSET)


@dataclass(frozen=True)
class Stretch:
    """Data of one call in a file. `file`: its name as the program opened it, empty if unknown. `begin`: the first byte,
    None if unknown. `scattered`: whether a view of the file puts the other bytes apart."""

    file: str
    begin: int | None
    scattered: bool
    bytes: int

    def holds(self, byte: int) -> bool:
        """Whether the data surely hold this byte of the file."""
        return self.begin is not None and not self.scattered and self.begin <= byte < self.begin + self.bytes

    def __str__(self) -> str:
        whole = f"{self.bytes:,} bytes of {self.file or 'a file without a name'}"
        if self.begin is None:
            return f"{whole} (at a place that is not recorded)"
        if self.scattered:
            return f"{whole} (the first is byte {self.begin:,}; the view of the file scatters the others)"
        return f"{whole} (from byte {self.begin:,} on)"


def stretches(trace: RankTrace, repeat: int) -> dict[int, Stretch]:
    """The data in files of one rank, by the `after` of the call's records."""
    values, files = trace.tables["values"], trace.attributes.get("files", {})
    known = np.array([name.startswith(PLACES) for name in trace.names] or [False])
    rows = np.flatnonzero(known[values["name"]] & (values["repeat"] == repeat))
    found: dict[int, dict[str, float]] = {}
    for row in rows.tolist():
        prefix = f"{trace.names[values['name'][row]].partition(':')[0]}:"
        found.setdefault(int(values["after"][row]), {})[prefix] = float(values["value"][row])
    sizes = trace.tables["events"]["bytes"]
    return {
        after: Stretch(
            str(files.get(f"{own.get(OF_FILE, 0):.0f}", "")),
            next((int(own[prefix]) for prefix in (OFFSET, VIEW_OFFSET) if prefix in own), None),
            VIEW_OFFSET in own,
            int(sizes[after - 1]) if 0 < after <= len(sizes) else 0,
        )
        for after, own in found.items()
    }


@dataclass(frozen=True)
class Write:
    """A call by which `rank` wrote data to a file; `start` in ns, on the clock of rank 0."""

    call: str
    rank: int
    step: int
    start: float
    data: Stretch

    def __str__(self) -> str:
        return f"{self.call}, step {self.step}, on rank {self.rank}: {self.data}"


def writes(run: str, repeat: int) -> list[Write]:
    """All writes to files in a run, in the order in which they began. Raises TraceError."""
    found = []
    for trace in read_run(run, ("events", "values", "fingerprints")):
        own, prints, events = stretches(trace, repeat), trace.tables["fingerprints"], trace.tables["events"]
        known = np.array([name.startswith(WRITTEN) for name in trace.names] or [False])
        for row in np.flatnonzero(known[prints["name"]] & (prints["repeat"] == repeat)).tolist():
            after, step = int(prints["after"][row]), int(prints["step"][row])
            if after not in own or not 0 < after <= len(events["start"]):
                continue
            start = float(events["start"][after - 1]) + trace.attributes.get("clock_offset_ns", 0.0)
            call = trace.names[prints["name"][row]].removeprefix(WRITTEN)
            found.append(Write(call, int(trace.attributes["rank"]), step, start, own[after]))
    return sorted(found, key=lambda write: (write.step, write.start))


def on_byte(runs: dict[str, list[Write]], file: str, byte: int) -> list[str]:
    """Sentences on the writes that put a byte, counted from 0, into a file. `runs`: the writes of each run, by its
    label; `file`: a name, or the end of a path."""
    of_file = {
        run: [each for each in own if each.data.file == file or each.data.file.endswith(f"/{file}")]
        for run, own in runs.items()
    }
    if not any(of_file.values()):
        names = sorted({each.data.file for own in runs.values() for each in own})
        known = f"recorded are {', '.join(names[:SHOWN])}" if names else "no write to a file is recorded"
        return [f"no write to {file} is recorded; {known} (writes without MPI are not seen)"]
    return [f"{said} in {run}" for run, own in of_file.items() if own for said in _holding(own, byte)]


def _holding(here: list[Write], byte: int) -> list[str]:
    """Which of the writes to a file of one run hold a byte."""
    begun = [each for each in here if each.data.begin is not None and each.data.begin <= byte]
    sure = [each for each in begun if each.data.holds(byte)]
    said = list(map(str, sure[-SHOWN:])) or ["no write is known to hold it"]
    said += [f"{len(sure) - SHOWN} earlier writes hold it, too"] if len(sure) > SHOWN else []
    maybe = sum(each.data.scattered for each in begun)
    said += [f"{maybe} writes in views with gaps may hold it"] if maybe else []
    unknown = sum(each.data.begin is None for each in here)
    return said + ([f"{unknown} writes at places that are not recorded may hold it"] if unknown else [])


def _stretches(scene: Scene) -> list[Stretch | None]:
    """The data in a file of the first difference, in both runs; None if the trace does not have it."""
    sides: list[Stretch | None] = []
    runs = (scene.a, scene.comparison.a, scene.at.rank_a), (scene.b, scene.comparison.b, scene.at.rank_b)
    for (row, run, rank), step in zip(runs, scene.at.steps, strict=True):
        here = scene.frames.segment(scene.table, *run, scene.at.name, step)
        here = here[(here["occurrence"] == scene.at.occurrence) & (here["block"] == scene.at.block)]
        try:
            (trace,) = read_run(row["path"], ("events", "values"), [rank])
        except (TraceError, ValueError):
            sides.append(None)
            continue
        sides.append(stretches(trace, run[1]).get(int(here["after"].min())) if len(here) else None)
    return sides


def _told(scene: Scene) -> str:
    """The place of the first difference in the file, as the end of a sentence; empty if it is not known."""
    one, other = _stretches(scene)
    if other is None:
        return ""
    return f": {other}" if one in (None, other) else f": {one} in one run, {other} in the other"


def of_written(scene: Scene, name: str) -> Cause:
    """Data that a rank wrote to a file differ."""
    why = [
        f"{which_ranks(scene)} wrote other bytes{_told(scene)}",
        "all that was recorded before it is equal",
    ]
    return Cause(KERNEL, scene.at, name, scene.rank, scene.event(name), tuple(why))


def of_read(scene: Scene, name: str) -> Cause:
    """Data that a rank read from a file differ."""
    why = [f"{which_ranks(scene)} read other bytes{_told(scene)}", "all that was recorded before it is equal"]
    names = scene.frames.recorded("fingerprints", *scene.comparison.b)
    if "read_shared" in name.partition(" ")[0]:
        why.append("ranks take their parts at the shared file pointer in the order in which they come")
        return Cause(ORDER, scene.at, name, scene.rank, scene.event(name), tuple(why))
    instead, reason = "", ""
    if any(each.startswith(WRITTEN) for each in names):
        instead = ORDER
        reason = "if the program wrote these bytes itself: writes of several ranks to one place have no order"
    return Cause(FROM_INPUT, scene.at, name, scene.rank, scene.event(name), tuple(why), instead, reason)


def of_place(scene: Scene, name: str) -> Cause:
    """A call wrote or read another file, or another place in it."""
    why = [
        f"the call is at another place in one run{_told(scene)}",
        "all that was recorded before it is equal",
    ]
    judgement = Judgement(
        OPEN, None, "a place in a file is not rounded, but rounded numbers may decide on it"
    )
    return Cause(
        KERNEL,
        scene.at,
        name.rpartition(":")[2],
        scene.rank,
        scene.event(name),
        tuple(why),
        rounding=judgement,
    )
