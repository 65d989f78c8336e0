"""Drawn campaigns of runs in which every bit is known, and what is true of any two of them, by an oracle of its own.

A pool of runs is written by the real tracer. Runs of `own` are of an application with blocks, states, a value and
messages; runs of `calls` look like programs that run as they are: totals of calls over all ranks or fewer, and messages
from any source. Each records more or less of this, may have a fault, may have lost a row or ended early. A campaign is
a few runs of one pool. The oracle knows nothing of the analysis: it has the rows that were written.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

from analysis.load.frames import Frames
from miniapps.trace import Tracer
from miniapps.trace.records import ADDED, PASSING, RECEIVED, SENT, SOURCE, TOTAL
from miniapps.trace.schema import rank_file
from tests.analysis.synthetic import write_result

STEPS, BLOCKS = 3, 4
DOT, SUB, HALF, ANY = (f"MPI_{call} at main (app.c:{line})" for call, line in (
    ("Allreduce", 10), ("Allreduce", 20), ("Allreduce", 30), ("Recv", 40),
))  # fmt: skip
Key = tuple[str, str, int, int]  # what a row is of, wherever the trace has it: kind, name, iteration, block


@dataclass
class Written:
    """One run: its rows {key: bits}, of which `of_ranks` are of this rank count alone, and what its result says."""

    app: str
    size: int
    guarantee: str
    options: tuple[bool, ...]
    rows: dict[Key, int] = field(default_factory=dict)
    of_ranks: set[Key] = field(default_factory=set)
    state: int | None = None
    complete: bool = True
    lost: bool = False

    @property
    def results(self) -> bool:
        """Whether it recorded states or values."""
        return any(kind in ("u", "energy") for kind, *_ in self.rows)


def shared(a: Written, b: Written) -> dict[Key, bool]:
    """Of the rows that both have and that are of one thing: whether they differ."""
    keys = a.rows.keys() & b.rows.keys()
    if a.size != b.size:
        keys -= a.of_ranks | b.of_ranks
    return {key: a.rows[key] != b.rows[key] for key in keys}


def final(a: Written, b: Written) -> bool | None:
    """Whether the final states differ; None where one has none."""
    return None if a.state is None or b.state is None else a.state != b.state


def must(a: Written, b: Written) -> dict[Key, bool]:
    """Of `shared`, the rows that have to be compared: all, but for what is passed on where runs recorded other states,
    and but for calls that are not over all ranks of both."""
    both = shared(a, b)
    if a.app == "own" and a.options[1:] != b.options[1:]:
        both = {key: differs for key, differs in both.items() if key[0] in ("u", "energy")}
    if a.app == "calls" and calls(a) != calls(b):
        return {}
    if a.app == "calls" and a.size != b.size:
        # A sum over one rank, or over two, is one of all ranks where there are no more, and counts as a step there.
        alone = a.options[0] and 1 in (a.size, b.size)
        few = alone or (a.options[1] and 4 in (a.size, b.size))
        both = {key: differs for key, differs in both.items() if key[1] == DOT and not few}
    return both


def calls(run: Written) -> tuple[bool, ...]:
    """Which sums a program makes: one that takes another path is another computation, whatever its numbers are."""
    return (*run.options[:2], *run.options[3:]) if run.app == "calls" else ()


def differ(a: Written, b: Written) -> bool:
    """Whether two runs differ in anything that both recorded, or in the calls that they made."""
    return calls(a) != calls(b) or any(shared(a, b).values()) or bool(final(a, b))


def must_differ(a: Written, b: Written) -> bool:
    """Whether they differ in what has to be compared."""
    return any(must(a, b).values()) or bool(final(a, b))


def comparable(a: Written, b: Written) -> bool:
    """Whether two runs have anything in common that has to be compared."""
    return bool(must(a, b)) or final(a, b) is not None


def draw(rng: random.Random, app: str, place: Path, made: tuple[bool, ...] = (True, True, True)) -> Written:
    """Draw a run, write it into the new directory `place`, and return what is in it; `made` are the sums of most runs
    of `calls`: over one rank, over two, over all."""
    run = _own(rng) if app == "own" else _calls(rng, made)
    if rng.random() < 0.3 and run.rows:
        key = rng.choice(sorted(run.rows))
        run.rows[key] += rng.choice([1, 2])
    if run.state is not None and rng.random() < 0.2:
        run.state += rng.choice([1, 2])
    if rng.random() < 0.1 and app == "own":
        run.complete, run.state = False, None
        run.rows = {key: bits for key, bits in run.rows.items() if key[2] < STEPS - 1}
        run.of_ranks &= run.rows.keys()
    elif rng.random() < 0.1 and app == "own" and run.rows:
        del run.rows[rng.choice(sorted(run.rows))]
        run.lost = True
        run.of_ranks &= run.rows.keys()
    _write(run, place)
    return run


def _own(rng: random.Random) -> Written:
    options = rng.random() < 0.5, rng.random() < 0.6, rng.random() < 0.6
    run = Written("own", rng.choice([1, 2, 2, 3]), rng.choice(["none", "none", "run", "layout"]), options)
    messages, states, energy = options
    for step in range(STEPS):
        if states:
            run.rows |= {("u", "u", step, block): 0 for block in range(BLOCKS)}
        if energy:
            run.rows["energy", "energy", step, -1] = 0
        if messages:
            run.rows[TOTAL, "s", step, -1] = 0
            added = {(ADDED, f"s by rank {rank} of {run.size}", step, -1): 0 for rank in range(run.size)}
            run.rows |= added
            run.of_ranks |= added.keys()
    run.state = 0 if rng.random() < 0.5 else None
    return run


def _calls(rng: random.Random, made: tuple[bool, ...]) -> Written:
    sub, half, dot = made if rng.random() < 0.9 else [rng.random() < 0.5 for _ in range(3)]
    options = sub, half, rng.random() < 0.3, dot
    run = Written("calls", rng.choice([1, 2, 2, 4, 4]), "none", options)
    messages = options[2]
    for step in range(STEPS):
        if dot:
            run.rows[TOTAL, DOT, step, -1] = 0
        own = {}
        for call, made, members in ((SUB, sub, 1), (HALF, half, min(2, run.size))):
            if made and members == run.size:
                run.rows[TOTAL, call, step, -1] = 0
            elif made:
                names = [f"{call} by rank {rank} of {run.size}" for rank in range(run.size)]
                own |= {(TOTAL, name, step, -1): 0 for name in names}
        if messages:
            own |= {(SOURCE, ANY, step, 0): 0, (RECEIVED, ANY, step, 0): 0, (SENT, ANY, step, 1): 0}
        run.rows |= own
        run.of_ranks |= own.keys()
    return run


def _write(run: Written, place: Path) -> None:
    place.mkdir(parents=True)
    write = _write_own if run.app == "own" else _write_calls
    tracers = [
        Tracer(place / rank_file(rank), _attributes(run, rank, str(place)), size=run.size)
        for rank in range(run.size)
    ]
    for step in range(STEPS):
        write(run, step, tracers)
    for tracer in tracers:
        tracer.close(complete=run.complete)
    if run.complete:
        write_result(place, fingerprints=[bytes([run.state] * 16).hex()] if run.state is not None else [])


def _write_own(run: Written, step: int, tracers: list[Tracer]) -> None:
    for tracer in tracers:
        tracer.at(0, step)
    for (kind, name, at, block), bits in run.rows.items():
        if at != step:
            continue
        rank = block * run.size // BLOCKS if kind == "u" else int(name.split()[3]) if kind == ADDED else 0
        if kind == "energy":
            tracers[0].value("energy", float(bits))
        else:
            tracers[rank].fingerprint(name if kind == "u" else f"{kind}{name}", block, bytes([bits] * 16))
    for tracer in tracers:
        tracer.event(tracer.name("work", "compute"), tracer.clock())


def _write_calls(run: Written, step: int, tracers: list[Tracer]) -> None:
    """The rows of one iteration of a program; the step of a trace counts collectives over all ranks."""
    sub, half, messages, dot = run.options
    whole = [dot, sub and run.size == 1, half and run.size <= 2, True]  # the last is a barrier
    epoch = step * sum(whole)
    for tracer in tracers:
        tracer.at(0, epoch)
        tracer.event(tracer.name("MPI_Barrier at main (app.c:1)", "collective"), tracer.clock())
    if messages:
        tracers[0].value(f"{SOURCE}{ANY}", float(run.rows[SOURCE, ANY, step, 0]), 0)
        tracers[0].fingerprint(f"{RECEIVED}{ANY}", 0, bytes([run.rows[RECEIVED, ANY, step, 0]] * 16))
        tracers[-1].fingerprint(f"{SENT}{ANY}", 1, bytes([run.rows[SENT, ANY, step, 1]] * 16))
    for place, (call, there) in enumerate(((DOT, dot), (SUB, sub), (HALF, half))):
        if not there:
            continue
        for rank, tracer in enumerate(tracers):
            name = call if whole[place] else f"{call} by rank {rank} of {run.size}"
            if rank == 0 or not whole[place]:
                tracer.fingerprint(f"{TOTAL}{name}", -1, bytes([run.rows[TOTAL, name, step, -1]] * 16))
        if whole[place]:
            epoch += 1
            for tracer in tracers:
                tracer.at(0, epoch)


def _attributes(run: Written, rank: int, run_id: str) -> dict:
    known = {
        "app": run.app, "problem": "p", "rank": rank, "guarantee": run.guarantee, "seed": 1,
        "repeats": 1, "allocation_id": "",
        "started": "2026-01-01T00:00:00+00:00", "run_id": run_id, "environment": {"mpi": "MPICH", "variables": {}},
    }  # fmt: skip
    if run.app == "own":
        messages, states, energy = run.options
        stated = {"run.record": [f"fingerprints:{prefix}*" for prefix in PASSING],
                  "record.states": ["fingerprints:u"], "record.energy": ["values:energy"]}  # fmt: skip
        sums = {"s": {"ordering": "ring", "region": "s", "guarantee": run.guarantee}}
        return known | {
            "config": {"run": {"record": messages}, "record": {"states": states, "energy": energy}},
            "method": {"run.guarantee": run.guarantee}, "reductions": sums,
            "options": {"run.guarantee": {"effect": "reduction", "records": [], "of_ranks": False}}
            | {key: {"effect": "", "records": rows, "of_ranks": False} for key, rows in stated.items()},
        }  # fmt: skip
    sizes = {DOT: run.size, SUB: 1, HALF: min(2, run.size)}
    facts = {"ordering": "library", "accumulation": "working", "wire": "as is", "collective": "allreduce",
             "guarantee": "none", "calls": STEPS, "operation": "MPI_SUM", "dtype": "float64", "shape": [1]}  # fmt: skip
    there = {DOT: run.options[3], SUB: run.options[0], HALF: run.options[1]}
    rows = [f"fingerprints:{prefix}*" for prefix in (ADDED, f"{TOTAL}* by rank ", SENT, RECEIVED)]
    return known | {
        "config": {"program": {"sums": "none", "replay": None}, "recording": {"of_ranks": True}},
        "method": {"program.sums": "none", "program.replay": None},
        "options": {
            "program.sums": {"effect": "reduction"}, "program.replay": {"effect": "replay"},
            "recording.of_ranks": {"records": [*rows, f"values:{SOURCE}*"], "of_ranks": True},
        },
        "reductions": {
            call: facts | {"region": call, "ranks": sizes[call]} for call, made in there.items() if made
        },
    }  # fmt: skip


def some(frames: Frames, names: list[str]) -> Frames:
    """`frames` of these runs alone."""
    runs, excluded = frames.runs, frames.excluded
    return replace(
        frames,
        runs=runs[runs["run"].isin(names).to_numpy()].reset_index(drop=True),
        excluded=excluded[excluded["run"].isin(names).to_numpy()].reset_index(drop=True),
    )
