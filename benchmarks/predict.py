"""Predictions of the time per step against runs that come after them, and against their floor.

    python -m benchmarks.predict --json benchmarks/results/predict.json

| part | what |
|---|---|
| steps | every round: calibrate, run decks on one rank, predict, append to a ledger, run the targets; score them all |
| shapes | products and convolutions of shapes that were not measured |
| speed | 200 replays of 64 ranks with 1,000 waits per step |

Before each round all cores spin for 50 ms; a round begins when they got 95 % of them, or after `--patience`, and is
then marked as busy. The error is exp(mean |ln(measured / median)|) - 1; its floor is what two launches of one target
have. Without a floor of 10 % or less an error means nothing, and the verdict is "not testable". Models are fitted on
one rank alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.harness.launching import mpirun
from benchmarks.harness.results import parts_parser, run_parts
from kernels.progress import Progress

SPIN_S, QUIET_SHARE, AGAIN_S = 0.05, 0.95, 2.0
LAUNCHES = 2  # of each target in a round
SOURCES = 3  # launches of each run that is predicted from, which say how far launches lie apart
CLOCKS = ("wall", "cpu")
RANKS = (1, 2)


@dataclass(frozen=True)
class Family:
    """Targets of one application and method: `deck`, the options `half` that make half of it, and those `between` that
    make three quarters, which is never run before it is predicted; `orderings` (label, options) are predicted on
    several ranks in place of the guarantee's."""

    name: str
    app: str
    deck: tuple[str, ...]
    half: tuple[str, ...]
    between: tuple[str, ...]
    orderings: tuple[tuple[str, tuple[str, ...]], ...] = ()


RING = ("ring", ("--allreduce", "ring"))
RABENSEIFNER = ("rabenseifner", ("--allreduce", "rabenseifner"))
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
    ),
    Family(
        "solver layout",
        "solver",
        ("--deck", "S", "--nx", "64", "--ny", "64", "--nz", "64", "--guarantee", "layout"),
        ("--nz", "32"),
        ("--nz", "48"),
    ),
    Family(
        "training layout",
        "training",
        ("--data", "blobs", "--model", "mlp", "--steps", "200", "--guarantee", "layout"),
        ("--batch", "128"),
        ("--batch", "192"),
    ),
)


def spin(seconds: float) -> float:
    """CPU over wall time of a processor that spins."""
    begin, used = time.perf_counter(), time.thread_time()
    while time.perf_counter() - begin < seconds:
        pass
    return (time.thread_time() - used) / (time.perf_counter() - begin)


def quiet(pool: ProcessPoolExecutor, cores: int, patience: float) -> bool:
    """Wait until all cores are free, at most `patience` seconds; whether they are."""
    end = time.monotonic() + patience
    while True:
        if min(pool.map(spin, [SPIN_S] * cores)) >= QUIET_SHARE:
            return True
        if time.monotonic() > end:
            return False
        time.sleep(AGAIN_S)


def start(words: list[str], ranks: int = 0) -> str:
    """The output of `python -m WORDS`, on so many ranks where they are given. Raises RuntimeError unless it ends with
    0."""
    command = [*([*mpirun(), "-n", str(ranks)] if ranks else []), sys.executable, "-m", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=1800, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def one_round(scratch: Path, ledger: Path, families, budget: float) -> None:
    """Calibrate, run decks on one rank, predict, run the targets; every directory under `scratch`.

    Sources are launched SOURCES times, all families in turn, so that launches lie as far apart as the targets do from
    them: minutes. Targets are launched LAUNCHES times and not repeated in a launch: what is done once in a process,
    such as loading libraries, belongs to each of them as it does to the decks that they are predicted from. What was
    run already is no target: on one rank that is a size between those of the decks.
    """
    calibration = str(scratch / "calibration")
    what = ["--what", "collectives", "--what", "noise"]
    start(
        ["miniapps.calibrate", "--budget", str(budget), *what, "--out", calibration,
         "--no-progress"],
        max(RANKS),
    )  # fmt: skip

    def run(family: Family, name: str, ranks: int, options, *more: str) -> str:
        out = scratch / f"{family.name} {name}".replace(" ", "-")
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
        how = ["--calibration", calibration, "--ledger", str(ledger)]
        for clock in CLOCKS:
            for options in _asked(family):
                start(["analysis", "predict", *own, *how, "--clock", clock, *options])
    for launch in range(LAUNCHES):
        for family in families:
            for name, ranks, options in _targets(family):
                run(family, f"{name} on {ranks} launch {launch}", ranks, options, "--ledger", str(ledger))


def _asked(family: Family) -> list[list[str]]:
    """What is predicted of a family, as options."""
    some, several = str(max(RANKS)), ",".join(map(str, RANKS))
    return [
        ["--ranks", some],
        ["--ranks", some, "--set", _setting(family.half)],
        ["--ranks", several, "--set", _setting(family.between)],
        *(["--ranks", some, "--ordering", label] for label, _ in family.orderings),
    ]


def _targets(family: Family) -> list[tuple[str, int, tuple[str, ...]]]:
    """The (name, ranks, options) of the runs that are predicted."""
    decks = (("deck", ()), ("half", family.half), *family.orderings)
    several = [(name, ranks, options) for name, options in decks for ranks in RANKS[1:]]
    return [*(("between", ranks, family.between) for ranks in RANKS), *several]


def _setting(options: tuple[str, ...]) -> str:
    """The options of a part of a deck as --set of `analysis predict` takes them."""
    flags = {"--nz": "grid.nz", "--batch": "training.batch"}
    return options[1] if options[0] == "--set" else f"{flags[options[0]]}={options[1]}"


def steps(options) -> list[dict]:
    """Predictions and runs in turn, scored together."""
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
        runs = sorted(str(path) for path in Path(directory).glob("round-*/*") if path.name != "calibration")
        scored = json.loads(start(["analysis", "score", str(ledger), *runs, "--no-cache", "--json"]))
    return _rows(scored, options.rounds, busy)


def _rows(scored: dict, rounds: int, busy: int) -> list[dict]:
    """A row per clock, application and rank count, and per clock of all."""
    targets = scored["tables"]["targets"]
    rows = []
    for clock in CLOCKS:
        own = [row for row in targets if row["clock"] == clock]
        groups = {"all": own}
        for row in own:
            groups.setdefault(f"{row['app']} on {row['ranks']}", []).append(row)
        for what, members in groups.items() if own else ():
            inside, runs = sum(row["inside"] for row in members), sum(row["runs"] for row in members)
            rows.append(
                {"part": "steps", "what": f"{what}, {clock}", "error": _mean([row["error"] for row in members]),
                 "floor": _mean([row["floor"] for row in members if row["floor"] is not None]),
                 "bias": float(np.expm1(np.mean([np.log1p(row["bias"]) for row in members]))),
                 "inside": inside / runs, "runs": runs, "best": sum(row["best"] == "prediction" for row in members),
                 "targets": len(members), "rounds": rounds, "busy": busy, "raw": members}
            )  # fmt: skip
    return rows


def _mean(errors: list[float]) -> float:
    """Of errors exp(x) - 1 that of the mean of x; NaN without any."""
    return float(np.expm1(np.mean(np.log1p(errors)))) if errors else float("nan")


def shapes(options) -> list[dict]:
    """Kernels of shapes that were left out, each fifth of them in turn."""
    from analysis.predict.calibration import read_calibration
    from analysis.predict.kernels import DIMS, KernelTimes

    rows = []
    with tempfile.TemporaryDirectory() as directory:
        out = f"{directory}/calibration"
        more = ["--set", "calibrate.shapes=100", "--what", "kernels", "--budget", str(4 * options.budget)]
        start(["miniapps.calibrate", *more, "--out", out, "--no-progress"], 1)
        calibration = read_calibration(out)
    for region in sorted({name for name in calibration.cases["region"] if name.partition(".")[0] in DIMS}):
        cases = calibration.of(region)
        dims = list(DIMS[region.partition(".")[0]])
        columns = [cases[each].to_numpy(float) for each in (dims, "flops", "nbytes", "seconds")]
        errors, roofs = [], 0
        for fold in range(5):
            out_of = np.arange(len(cases)) % 5 == fold
            model = KernelTimes(*(column[~out_of] for column in columns))
            x, flops, nbytes, seconds = (column[out_of] for column in columns)
            predicted, outside = model.seconds(x, flops, nbytes)
            errors += np.abs(np.log(predicted / seconds))[~outside].tolist()
            roofs += int(outside.sum())
        rows.append(
            {"part": "shapes", "what": f"{region}, {roofs} outside the hull left out",
             "error": float(np.expm1(np.mean(errors))), "floor": calibration.spread, "bias": None, "inside": None,
             "runs": len(errors), "best": 0, "targets": len(cases), "rounds": 1, "busy": 0, "raw": errors}
        )  # fmt: skip
    return rows


def speed(options) -> list[dict]:
    """Seconds of 200 replays of 64 ranks with 1,000 waits per step."""
    from analysis.predict.noise import Noise
    from analysis.predict.replay import Step, Wait, simulate

    size, waits, replays = 64, 1000, 200
    rng = np.random.default_rng(1)
    work, residuals = np.full(size, 2e-5), np.exp(0.1 * rng.standard_normal(100))
    wait = Wait("allreduce", np.full(size, 5e-6), None, work, np.zeros(size), residuals, np.ones(1))
    step = Step([wait] * waits, [(k, True, True) for k in range(waits)], work, residuals)
    begin = time.perf_counter()
    noise = Noise(rng.uniform(0.5, 1.0, (1000, 2)), size, replays, 1.0, rng)
    simulate([step], 1, size, noise, np.exp(0.02 * rng.standard_normal(replays)), rng)
    seconds = time.perf_counter() - begin
    return [{"part": "speed", "what": "64 ranks, 1,000 waits, 200 replays, s", "error": seconds, "floor": None,
             "bias": None, "inside": None, "runs": 1, "best": 0, "targets": 1, "rounds": 1, "busy": 0,
             "raw": [seconds]}]  # fmt: skip


PARTS = {"steps": steps, "shapes": shapes, "speed": speed}


def main(argv=None) -> None:
    """Measure the parts asked for."""
    parser = parts_parser("predict", __doc__, PARTS, rounds=6)
    parser.add_argument(
        "--budget", type=float, default=8.0, help="seconds of a calibration (default %(default)s)"
    )
    parser.add_argument(
        "--patience", type=float, default=300.0, help="seconds to wait for quiet (default %(default)s)"
    )
    parser.add_argument(
        "--family", action="append", choices=[family.name for family in FAMILIES], help="of the targets"
    )
    run_parts("predict", parser, PARTS, argv)


if __name__ == "__main__":
    main()
