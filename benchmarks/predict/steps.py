"""Predicts applications on one rank and several: every round predicts targets from runs on one rank, then runs them."""

from __future__ import annotations

import json
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.predict.rounds import mean_error, quiet, start
from kernels.progress import Progress

LAUNCHES = 2  # of each target in a round
SOURCES = 3  # launches of each source run; their differences give the spread between launches
CLOCKS = ("wall", "cpu")
CROWDED = "more ranks than cores"  # the name of such targets in scores


@dataclass(frozen=True)
class Family:
    """Targets of one application and method: `deck`; the options `half` for half of its size, and `between` for three
    quarters, which never runs before its prediction. `orderings`, (label, options), are predicted on several ranks in
    place of the guarantee's. `ranks`: numbers of ranks of all targets; `crowded`: numbers of ranks of the deck that
    exceed the cores."""

    name: str
    app: str
    deck: tuple[str, ...]
    half: tuple[str, ...]
    between: tuple[str, ...]
    orderings: tuple[tuple[str, tuple[str, ...]], ...] = ()
    ranks: tuple[int, ...] = (1, 2)
    crowded: tuple[int, ...] = ()


RING = ("ring", ("--allreduce", "ring"))
RABENSEIFNER = ("rabenseifner", ("--allreduce", "rabenseifner"))
QUARTERS = {256: ("128", "192"), 32: ("16", "24"), 140: ("70", "105")}


def _learning(app: str, name: str, batch: int, *deck: str, ranks=(1, 2), crowded=()) -> Family:
    half, between = QUARTERS[batch]
    fixed = ("--guarantee", "layout", "--evaluate-every", "0", "--batch", str(batch))
    sizes = ("--batch", half), ("--batch", between)
    return Family(f"training {name}", app, (*deck, *fixed), *sizes, ranks=ranks, crowded=crowded)


FAMILIES = (
    Family(
        "coupled none",
        "coupled",
        ("--deck", "S", "--guarantee", "none"),
        ("--set", "grid.ny=64"),
        ("--set", "grid.ny=96"),
    ),
    Family(
        "coupled run",
        "coupled",
        ("--deck", "S", "--guarantee", "run"),
        ("--set", "grid.ny=64"),
        ("--set", "grid.ny=96"),
        (RING, RABENSEIFNER),
    ),
    Family(
        "coupled layout",
        "coupled",
        ("--deck", "S", "--guarantee", "layout"),
        ("--set", "grid.ny=64"),
        ("--set", "grid.ny=96"),
        crowded=(4,),
    ),
    Family(
        "solver layout",
        "solver",
        ("--deck", "S", "--nx", "64", "--ny", "64", "--nz", "64", "--guarantee", "layout"),
        ("--nz", "32"),
        ("--nz", "48"),
    ),
    _learning("training", "mlp", 256, "--data", "blobs", "--model", "mlp", "--steps", "200", crowded=(4,)),
    _learning("training", "cnn", 256, "--data", "blobs", "--model", "cnn", "--steps", "60"),
    _learning("training", "graphsage", 140, "--deck", "graphsage", "--steps", "10"),
    _learning("dlrm", "dlrm", 256, "--rows", "20000", "--steps", "100"),
    # On several ranks another mesh partitions it differently, which is not modelled.
    _learning(
        "mesh", "gpt", 32, "--data", "text", "--model", "gpt", "--steps", "20", "--set", "training.micro=8", "--set",
        "model.tokens=64", "--set", "model.layers=2", "--set", "model.hidden=64", ranks=(1,),
    ),
)  # fmt: skip


def one_round(scratch: Path, ledger: Path, families, budget: float) -> None:
    """Calibrates, runs decks on one rank, predicts, runs the targets; all directories are under `scratch`.

    Sources are launched SOURCES times, all families in turn, so launches are minutes apart, as targets are from them.
    Targets are launched LAUNCHES times without repeats in a launch, so each includes the work done once per process,
    such as loading libraries, as the sources do. A run that exists already is not a target: on one rank the target has
    a size between those of the decks.
    """
    what = ["--what", "collectives", "--what", "noise", "--no-progress"]
    calibrations = []
    for ranks in sorted({size for family in families for size in (*family.ranks, *family.crowded)} - {1}):
        calibrations += ["--calibration", str(scratch / "calibration" / str(ranks))]
        start(["miniapps.calibrate", "--budget", str(budget), *what, "--out", calibrations[-1]], ranks)

    def run(family: Family, name: str, ranks: int, options, *more: str) -> str:
        out = scratch / family.name / name.replace(" ", "-")
        app = f"miniapps.{family.app}"
        start([app, *family.deck, *options, "--out", str(out), "--no-progress", *more], ranks)
        return str(out)

    sources = {
        (family.name, launch, which): run(family, f"source {which} {launch}", 1, options)
        for launch in range(SOURCES)
        for family in families
        for which, options in (("deck", ()), ("half", family.half))
    }
    for family in families:
        own = [path for (name, *_), path in sources.items() if name == family.name]
        how = [*calibrations, "--ledger", str(ledger)]
        for clock in CLOCKS:
            for options in _asked(family):
                start(["analysis", "predict", *own, *how, "--clock", clock, *options])
    for launch in range(LAUNCHES):
        for family in families:
            for name, ranks, options in _targets(family):
                run(family, f"{name} on {ranks} launch {launch}", ranks, options, "--ledger", str(ledger))


def _asked(family: Family) -> list[list[str]]:
    """The options of the predictions for a family."""
    several = [str(size) for size in (*family.ranks, *family.crowded) if size > 1]
    asked = [["--ranks", ",".join(map(str, family.ranks)), "--set", _setting(family.between)]]
    if several:
        asked += [["--ranks", ",".join(several)], ["--ranks", several[0], "--set", _setting(family.half)]]
    return [*asked, *(["--ranks", several[0], "--ordering", label] for label, _ in family.orderings)]


def _targets(family: Family) -> list[tuple[str, int, tuple[str, ...]]]:
    """The (name, ranks, options) of the predicted runs."""
    decks = (("deck", ()), ("half", family.half), *family.orderings)
    several = [(name, size, options) for name, options in decks for size in family.ranks if size > 1]
    crowded = [("deck", size, ()) for size in family.crowded]
    return [*(("between", size, family.between) for size in family.ranks), *several, *crowded]


def _setting(options: tuple[str, ...]) -> str:
    """The options of a part of a deck, in the form of --set of `analysis predict`."""
    flags = {"--nz": "grid.nz", "--batch": "training.batch"}
    return options[1] if options[0] == "--set" else f"{flags[options[0]]}={options[1]}"


def steps(options) -> list[dict]:
    """The rows of all rounds of predictions and runs, scored together."""
    families = [family for family in FAMILIES if not options.family or family.name in options.family]
    cores = len(os.sched_getaffinity(0))
    busy = 0
    progress = Progress("predict", quiet=options.quiet)
    with tempfile.TemporaryDirectory() as directory, ProcessPoolExecutor(cores) as pool:
        ledger = Path(directory) / "predictions.jsonl"
        for k in range(options.rounds):
            progress.show(k / options.rounds, f"round {k + 1} of {options.rounds}")
            busy += not quiet(pool, cores, options.patience)
            one_round(Path(directory) / f"round-{k}", ledger, families, options.budget)
        progress.clear()
        runs = sorted(
            str(path) for path in Path(directory).glob("round-*/*/*") if path.parent.name != "calibration"
        )
        scored = json.loads(start(["analysis", "score", str(ledger), *runs, "--no-cache", "--json"]))
    return rows_of(scored, options.rounds, busy)


def rows_of(scored: dict, rounds: int, busy: int, part: str = "steps", whole: str = "all") -> list[dict]:
    """A row per clock, family of targets (the directory of their runs) and rank count; and a row per clock over all
    targets, named `whole`, without targets on more ranks than cores."""
    families = {each["row"]: Path(each["run"]).parent.name for each in scored["tables"]["samples"]}
    rows = []
    for clock in CLOCKS:
        own = [row for row in scored["tables"]["targets"] if row["clock"] == clock]
        groups = {whole: [row for row in own if not row["kind"].endswith(CROWDED)]}
        for row in own:
            groups.setdefault(f"{families[row['row']]} on {row['ranks']}", []).append(row)
        for what, members in groups.items() if own else ():
            inside, runs = sum(row["inside"] for row in members), sum(row["runs"] for row in members)
            rows.append(
                {"part": part, "what": f"{what}, {clock}", "error": mean_error([row["error"] for row in members]),
                 "floor": mean_error([row["floor"] for row in members if row["floor"] is not None]),
                 "bias": float(np.expm1(np.mean([np.log1p(row["bias"]) for row in members]))),
                 "inside": inside / runs, "runs": runs, "best": sum(row["best"] == "prediction" for row in members),
                 "compared": sum(row["best"] != "" for row in members), "targets": len(members), "rounds": rounds,
                 "busy": busy, "raw": members}
            )  # fmt: skip
    return rows
