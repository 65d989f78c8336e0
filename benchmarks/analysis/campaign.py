"""Campaigns for the benchmark of the analysis: traces of an application without work, written one rank at a time by the
storage of the real trace writer."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from kernels.sizes import COLUMNS, sizes
from miniapps.trace.schema import fingerprint_rows, rank_file
from miniapps.trace.storage import Storage
from miniapps.untrusted.result import RESULT, written

REGIONS = {"step": "other", "closure": "compute", "halo": "exchange", "rhs": "compute", "poisson": "compute",
           "allreduce.cg": "collective", "record": "other"}  # fmt: skip
FIELDS = ("vorticity", "streamfunction")
SCALARS = ("energy", "enstrophy", "dt", "budget")
SLOT_NS = 10_000  # of an event


@dataclass(frozen=True)
class Shape:
    """A campaign: `runs` runs of `ranks` ranks, `steps` steps of `events` events each, `blocks` blocks per rank with a
    fingerprint of each of FIELDS and a value at every step, and scalars on rank 0.

    Runs are equal except for `changed`, {run: (step, block)} from which that run has other bits; with `own`, every run
    differs from step 1 on. The runs are divided among `cells` orderings. `sites` more regions and `names` more values
    imitate a program with many call sites and numbers.
    """

    runs: int
    ranks: int
    steps: int
    blocks: int = 1
    events: int = 20
    cells: int = 2
    own: bool = False
    changed: dict[int, tuple[int, int]] = field(default_factory=dict)
    sites: int = 0
    names: int = 0


def write(out: Path, shape: Shape, processes: int = 2) -> None:
    """Writes the campaign `shape` into the new directory `out`."""
    tasks = [(run, rank) for run in range(shape.runs) for rank in range(shape.ranks)]
    for run in range(shape.runs):
        directory(out, run).mkdir(parents=True)
    with ProcessPoolExecutor(processes) as pool:
        seals = list(pool.map(partial(_write_rank, out, shape), tasks, chunksize=16))
    for run in range(shape.runs):
        own = seals[run * shape.ranks : (run + 1) * shape.ranks]
        traces = {rank_file(rank): seal for rank, seal in enumerate(own)}
        content = {"status": "done", "exit_code": 0, "checks": [], "fingerprints": [], "traces": traces}
        (directory(out, run) / RESULT).write_text(written(content))


def directory(out: Path, run: int) -> Path:
    """The directory of run number `run`."""
    return out / f"run-{run:05d}"


def _write_rank(out: Path, shape: Shape, task: tuple[int, int]) -> str:
    """Writes the trace of one rank; returns its seal."""
    run, rank = task
    regions = REGIONS | {f"site {k} (solver.c:{k})": "compute" for k in range(shape.sites)}
    scalars = (*SCALARS, *(f"quantity {k}" for k in range(shape.names)))
    names = [*regions, *FIELDS, "sample", *scalars, "float64", "cpu_time"]
    number = {name: k for k, name in enumerate(names)}
    own = np.arange(rank * shape.blocks, (rank + 1) * shape.blocks, dtype=np.int32)
    pieces: dict[str, list[dict[str, np.ndarray]]] = {"values": [], "fingerprints": [], "sizes": []}
    for step in range(1, shape.steps + 1):
        state = _state(shape, run, rank, step)
        after = {"repeat": 0, "step": step, "after": shape.events * step - 1, "block": own}
        words = np.frombuffer(b"".join(fingerprint_rows(state)), ">u8").reshape(-1, 2).astype(np.uint64)
        count, rows = sizes(state) or (0, np.zeros((len(own), len(COLUMNS))))
        for name in FIELDS:
            of = after | {"name": number[name]}
            pieces["fingerprints"].append(of | {"hi": words[:, 0], "lo": words[:, 1]})
            sized = dict(zip(COLUMNS, rows.T, strict=True))
            pieces["sizes"].append(of | {"dtype": number["float64"], "count": count, "sample": 1, **sized})
        pieces["values"].append(after | {"name": number["sample"], "value": state[:, 0]})
        if rank == 0:
            codes = np.arange(number[scalars[0]], number[scalars[0]] + len(scalars), dtype=np.int32)
            numbers = step * 0.5 * (1 + np.arange(len(scalars)))
            if shape.own:
                numbers = numbers * (
                    1 + np.random.default_rng([run, step]).integers(0, 9, len(scalars)) * 2**-52
                )
            pieces["values"].append(
                after | {"name": codes, "block": np.full(len(codes), -1, np.int32), "value": numbers}
            )
    tables = {table: _joined(own) for table, own in pieces.items()}
    tables["events"] = _events(shape, list(range(len(regions))), rank)
    steps = np.arange(1, shape.steps + 1, dtype=np.int32)
    tables["usage"] = _joined(
        [{"repeat": 0, "step": steps, "name": number["cpu_time"], "value": steps * 1e-3}]
    )
    storage = Storage(
        directory(out, run) / rank_file(rank), _attributes(shape, run, rank, regions), shape.ranks
    )
    storage.append(tables, names)
    return storage.finish(
        True, {"events": len(tables["events"]["name"]), "ns_per_event": 200.0, "flush_ns": 0}
    )


def _state(shape: Shape, run: int, rank: int, step: int) -> np.ndarray:
    state = np.random.default_rng([step, rank]).random((shape.blocks, 4))
    if shape.own:
        state += np.random.default_rng([run, rank, step]).integers(0, 9, state.shape) * 2.0**-53
    elif run in shape.changed and step >= shape.changed[run][0]:
        block = shape.changed[run][1] - rank * shape.blocks
        if 0 <= block < shape.blocks:
            state[block, 0] += 1e-16
    return state


def _joined(pieces: list[dict]) -> dict[str, np.ndarray]:
    """Concatenates the columns of all `pieces`; a scalar is repeated for all rows of its piece."""
    lengths = [max(np.size(column) for column in piece.values()) for piece in pieces]
    return {
        key: np.concatenate(
            [np.broadcast_to(piece[key], (length,)) for piece, length in zip(pieces, lengths, strict=True)]
        )
        for key in pieces[0]
    }


def _events(shape: Shape, codes: list[int], rank: int) -> dict[str, np.ndarray]:
    """Events of one rank: regions in turn inside the region of the step, which ends last. Exchanges and collectives end
    together on all ranks; other regions have random lengths."""
    inner = shape.events - 1
    code = np.array(codes[1:], np.int32)[np.arange(inner) % (len(codes) - 1)]
    slots = (np.arange(shape.steps)[:, None] * (shape.events + 1) + np.arange(inner)) * SLOT_NS
    rng = np.random.default_rng(rank)
    waits = np.isin(code, [list(REGIONS).index(name) for name in ("halo", "allreduce.cg")])
    early = rng.integers(0, SLOT_NS // 4, (shape.steps, inner))
    start = slots + np.where(waits, early, 0)
    end = slots + np.where(waits, SLOT_NS - 1000, SLOT_NS // 2 + rng.integers(0, SLOT_NS // 4, slots.shape))
    begin, finish = slots[:, :1] - 10, end[:, -1:] + 10
    where = np.repeat(np.arange(1, shape.steps + 1, dtype=np.int32), shape.events)
    name = np.tile(np.append(code, np.int32(codes[0])), shape.steps)
    return {
        "start": np.hstack([start, begin]).ravel() + SLOT_NS, "end": np.hstack([end, finish]).ravel() + SLOT_NS,
        "name": name, "repeat": np.zeros(len(name), np.int32), "step": where,
        "bytes": np.where(name == 2, 4096, 0), "flops": np.zeros(len(name), np.int64),
    }  # fmt: skip


def _attributes(shape: Shape, run: int, rank: int, regions: dict[str, str]) -> dict:
    guarantee, ordering = (("none", "arrival"), ("run", "ring"))[run % shape.cells]
    near = sorted({(rank - 1) % shape.ranks, (rank + 1) % shape.ranks} - {rank})
    return {
        "app": "coupled", "problem": "campaign", "config": {"run": {"seed": 1}, "grid": {"n": 4096}},
        "rank": rank, "guarantee": guarantee, "seed": 1, "repeats": 1, "run_id": f"r{run}",
        "allocation_id": str(run // 4), "started": f"2026-01-01T00:{run % 60:02d}:00+00:00",
        "method": {"run.device": "cpu", "run.guarantee": guarantee},
        "options": {"run.device": {"effect": "device"}, "run.guarantee": {"effect": "reduction"}},
        "reductions": {"scalars": {"region": "allreduce.scalars", "ordering": ordering}},
        "regions": regions, "partners": {"halo": near},
        "environment": {"mpi": "MPICH", "node": f"n{rank // 64}", "process": rank, "variables": {}},
    }  # fmt: skip
