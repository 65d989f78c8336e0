"""Predicts batches and widths without runs, on one rank, by laws of several sizes, and compares with later runs."""

from __future__ import annotations

import json
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from benchmarks.predict.rounds import quiet, start
from benchmarks.predict.steps import LAUNCHES, rows_of
from kernels.progress import Progress

SOURCES = 2  # launches of each source run
CLOCK = "cpu"
PLACES = ("inside", "outside")  # of the hull of the source sizes


@dataclass(frozen=True)
class Grid:
    """A model of an application that runs at each of `batches` with each of `widths`, and is predicted at the pairs
    (batch, width) of `inside` and `outside`."""

    app: str
    name: str
    options: tuple[str, ...]
    batches: tuple[int, ...]
    widths: tuple[int, ...]
    inside: tuple[tuple[int, int], ...]
    outside: tuple[tuple[int, int], ...]


GRIDS = (
    Grid(
        "mesh",
        "gpt",
        ("--model", "gpt", "--data", "text", "--steps", "30", "--set", "training.micro=8", "--set",
         "model.tokens=64", "--set", "model.layers=2"),
        (16, 32),
        (64, 128, 192),
        ((24, 96), (24, 160)),
        ((40, 224), (48, 128)),
    ),
    Grid(
        "dlrm",
        "dlrm",
        ("--steps", "100", "--rows", "20000"),
        (128, 256),
        (64, 128, 256),
        ((192, 96), (224, 192)),
        ((256, 320), (384, 128)),
    ),
)  # fmt: skip


def _sized(batch: int, width: int) -> list[str]:
    return ["--set", f"training.batch={batch}", "--set", f"model.hidden={width}"]


def one_round(scratch: Path, ledgers: dict[str, Path]) -> None:
    """Runs every grid, predicts, runs the targets; directories under `scratch` are named by grid and place."""

    def run(grid: Grid, name: str, batch: int, width: int, *more: str) -> str:
        out = scratch / f"{grid.name}-{name}-{batch}-{width}"
        size = _sized(batch, width)
        fixed = ["--evaluate-every", "0", "--no-progress"]
        start([f"miniapps.{grid.app}", *grid.options, *size, *fixed, "--out", str(out), *more], 1)
        return str(out)

    sources: dict[str, list[str]] = {grid.name: [] for grid in GRIDS}
    for launch in range(SOURCES):
        for grid in GRIDS:
            for batch, width in product(grid.batches, grid.widths):
                sources[grid.name].append(run(grid, f"source-{launch}", batch, width))
    for grid in GRIDS:
        for place in PLACES:
            for size in getattr(grid, place):
                how = ["--clock", CLOCK, "--ledger", str(ledgers[place])]
                start(["analysis", "predict", *sources[grid.name], "--ranks", "1", *_sized(*size), *how])
    for launch in range(LAUNCHES):
        for grid in GRIDS:
            for place in PLACES:
                for size in getattr(grid, place):
                    run(grid, f"{place}-{launch}", *size, "--ledger", str(ledgers[place]))


def unseen(options) -> list[dict]:
    """A row per model and place of its targets: between the source sizes, or beyond them."""
    cores = len(os.sched_getaffinity(0))
    busy = 0
    progress = Progress("predict", quiet=options.quiet)
    rows = []
    with tempfile.TemporaryDirectory() as directory, ProcessPoolExecutor(cores) as pool:
        root = Path(directory)
        ledgers = {place: root / f"{place}.jsonl" for place in PLACES}
        for k in range(options.rounds):
            progress.show(k / options.rounds, f"round {k + 1} of {options.rounds}")
            busy += not quiet(pool, cores, options.patience)
            one_round(root / f"round-{k}", ledgers)
        progress.clear()
        for grid, place in product(GRIDS, PLACES):
            runs = [
                str(path) for path in sorted(root.glob(f"round-*/{grid.name}-*")) if place_of(path, place)
            ]
            scored = json.loads(
                start(["analysis", "score", str(ledgers[place]), *runs, "--no-cache", "--json"])
            )
            what = f"{grid.name}, {place} the hull"
            scores = rows_of(scored, options.rounds, busy, "unseen", what)
            rows += [row for row in scores if row["what"].startswith(what)]
    return rows


def place_of(path: Path, place: str) -> bool:
    """Whether the run is a source, or a target of that place."""
    return path.name.split("-")[1] in ("source", place)
