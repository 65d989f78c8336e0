"""Prices drawn plans from calibrated kernels and messages, and runs them: no price has seen a run of its plan.

For each model and number of ranks: calibrate with the space (other draws of it), and run the drawn plans, in turn,
LAUNCHES times, so that both meet the machine in the same states; then price the plans from the calibrations alone. A
step is that of a `Learner`, the program and Adam, or of the trainer of DLRM. Four ranks share two cores, or have four
nodes of namespaces with links of two rates (`plan-nodes`).

The clocks of processors change from minute to minute. "wall" and "cpu" compare times as they were, and "wall at one
clock" brings those of each run to the clock of the calibration, by a fixed number of cycles that both timed.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from analysis.predict.reading.launches import read_calibrations
from benchmarks.predict.nodes import LINKS, NODES, asleep, job
from benchmarks.predict.rounds import apart, calibrated, mean_error, prices, start
from jobs.cluster import cluster
from kernels.progress import Progress

SPACES = {
    "gpt": "gpt dp|tp|dp+tp|zero width=64..256 layers=1..3 samples=8..32 tokens=16..64 batch=4 feedforward=4*width",
    "bert": "bert dp|tp|dp+tp|zero width=64..256 layers=1..3 samples=8..32 tokens=16..64 batch=4 feedforward=4*width",
    "mlp": "mlp dp|tp|dp+tp|zero features=64..512 width=128..1024 samples=32..256 batch=4",
    "unet": "unet dp|spatial|dp+spatial height=24..48 width=24..48 filters=8..32 samples=4..16 batch=4",
    "dlrm": "dlrm table|column|row tables=4..16 rows=1000..100000 pooling=1..8 width=16..64 batch=128..1024",
    "moe": "moe dp|expert features=32..256 width=32..256 hidden=64..512 tokens=16..64 samples=8..32 batch=8",
}
RANKS = (1, 2, 4)
OVER_NODES = ("gpt", "unet", "dlrm")
CLOCKS = ("wall", "cpu")
ONE_CLOCK = "wall at one clock"


def plans(options) -> list[dict]:
    """A row per model, number of ranks and clock; and a row per clock over all on as many ranks as there are cores."""
    rows: list[dict] = []
    progress = Progress("predict", quiet=options.quiet)
    names = options.model or SPACES
    cases = [(name, ranks) for name in names for ranks in options.ranks or RANKS]
    with tempfile.TemporaryDirectory() as directory:
        for number, (name, ranks) in enumerate(cases):
            progress.show(number / len(cases), f"{name} on {ranks}")
            rows += of_model(
                Path(directory) / f"{name}-{ranks}", name, ranks, f"{name} on {ranks}", options, start
            )
    progress.clear()
    cores = len(os.sched_getaffinity(0))
    for clock in (*CLOCKS, ONE_CLOCK):
        own = [row for row in rows if row["clock"] == clock and row["ranks"] <= cores]
        rows.append(summary("all", clock, 0, [each for row in own for each in row["raw"]],
                            [each for row in own for each in row["unpriced"]]))  # fmt: skip
    return rows


def plan_nodes(options) -> list[dict]:
    """A row per model, rate of the links and clock, of four nodes with a rank each."""
    rows: list[dict] = []
    progress = Progress("predict", quiet=options.quiet)
    environment = {"OMP_NUM_THREADS": "1"} | asleep()
    names = options.model or OVER_NODES
    cases = [(link, name) for link in LINKS for name in names]
    with tempfile.TemporaryDirectory() as directory:
        for number, (link, name) in enumerate(cases):
            what = f"{name} on {NODES} nodes, {link}"
            progress.show(number / len(cases), what)
            with cluster(nodes=NODES, link=link, name="plans") as here:

                def run(words: list[str], ranks: int, here=here) -> str:
                    return job(here, words, ranks // NODES, environment)

                rows += of_model(Path(directory) / f"{name}-{link}", name, NODES, what, options, run)
    progress.clear()
    return rows


def of_model(
    scratch: Path, name: str, ranks: int, what: str, options, run: Callable[[list[str], int], str]
) -> list[dict]:
    """Calibrates, runs and prices the plans of one model on a number of ranks; returns a row per clock. `run(words,
    ranks)`: the output of a command on all ranks."""
    from miniapps.calibrate.plans import drawing, space_of
    from miniapps.partition.pricing.program import program_of
    from miniapps.partition.pricing.space import prepared
    from miniapps.untrusted.program import to_json

    scratch.mkdir()
    text = f"{SPACES[name]} ranks={ranks}"
    rng, space = np.random.default_rng([7, ranks]), space_of(text)
    drawn = list(dict.fromkeys(str(space.draw(rng)) for _ in range(options.plans)))
    files = []
    for number, each in enumerate(drawn):
        one, own = space_of(each).draw(rng), drawing(name)
        program = program_of(*prepared(one)[:2], one.level, each) if own is None else own.program(one)
        files.append(scratch / f"{number}.json")
        files[-1].write_bytes(to_json(program))
    calibrations, launches = [], []
    for calibration in calibrated(scratch, text, ranks, options, run):
        calibrations.append(calibration)
        steps = run(["benchmarks.predict.plan_steps", "--quiet", *drawn], ranks)
        launches.append(json.loads(_last_object(steps)))
    priced = {clock: prices(files, calibrations, clock) for clock in CLOCKS}
    [pooled] = read_calibrations(calibrations)
    for launch in launches:
        ratios = pooled.chain / np.array(launch["chain"])
        launch[ONE_CLOCK] = (ratios * launch["wall"]).tolist()
    priced[ONE_CLOCK] = priced["wall"]
    return [
        summary(what, clock, ranks, compared(drawn, own["plans"], launches, clock),
                [{key: row[key] for key in ("title", "reason")} for row in own["unpriced"]])
        for clock, own in priced.items()
    ]  # fmt: skip


def _last_object(printed: str) -> str:
    """The last line of JSON, after which a launcher may have printed more."""
    return next(line for line in reversed(printed.splitlines()) if line.startswith("{"))


def compared(
    drawn: Sequence[str], priced: Sequence[dict], launches: Sequence[dict], clock: str
) -> list[dict]:
    """A row per plan that was priced: predicted quantiles, the medians of the launches, and their shares of steps that
    nothing disturbed."""
    by = {row["title"]: row for row in priced}
    return [
        {"plan": plan, "predicted_s": by[plan]["p50_s"], "low_s": by[plan]["p10_s"], "high_s": by[plan]["p90_s"],
         "measured_s": [each[clock][k] for each in launches],
         "undisturbed": [each["undisturbed"][k] for each in launches],
         "chain_s": [each["chain"][k] for each in launches],
         "extrapolated": by[plan]["extrapolated"]}
        for k, plan in enumerate(drawn)
        if plan in by  # the others are `unpriced`
    ]  # fmt: skip


def summary(what: str, clock: str, ranks: int, raw: list[dict], unpriced: list[dict]) -> dict:
    """The errors of plans, their floor, their bias, how many runs are within the interval, and the `unpriced` plans,
    which call a kernel that no draw of the calibration called."""
    off = [np.log(np.median(each["measured_s"]) / each["predicted_s"]) for each in raw]
    inside = [each["low_s"] <= seconds <= each["high_s"] for each in raw for seconds in each["measured_s"]]
    return {
        "part": "plans", "what": f"{what}, {clock}", "clock": clock,
        "error": mean_error([float(np.expm1(abs(x))) for x in off]),
        "floor": mean_error([apart(each["measured_s"]) for each in raw]),
        "bias": float(np.mean(off)), "inside": float(np.mean(inside)), "runs": len(inside), "best": 0, "compared": 0,
        "targets": len(raw), "rounds": 1, "busy": int(os.getloadavg()[0] > 2 * (os.cpu_count() or 1)), "raw": raw,
        "ranks": ranks, "unpriced": unpriced,
        "undisturbed": float(np.mean([each["undisturbed"] for each in raw])),
    }  # fmt: skip
