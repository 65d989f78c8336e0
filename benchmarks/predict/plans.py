"""Prices drawn plans from calibrated kernels and messages, then runs them: no plan ran before its price was written.

For each model and number of ranks: calibrate with the space (other draws of it), price the drawn plans, run all of them
twice. A step is that of a `Learner`, the program and Adam, or of the trainer of DLRM.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.harness.launching import mpirun, output_of
from benchmarks.predict.rounds import mean_error, start
from kernels.progress import Progress

SPACES = {
    "gpt": "gpt dp|tp|dp+tp|zero width=64..256 layers=1..3 samples=8..32 tokens=16..64 batch=4 feedforward=4*width",
    "bert": "bert dp|tp|dp+tp|zero width=64..256 layers=1..3 samples=8..32 tokens=16..64 batch=4 feedforward=4*width",
    "mlp": "mlp dp|tp|dp+tp|zero features=64..512 width=128..1024 samples=32..256 batch=4",
    "unet": "unet dp|spatial|dp+spatial height=24..48 width=24..48 filters=8..32 samples=4..16 batch=4",
    "dlrm": "dlrm table|column|row tables=4..16 rows=1000..100000 pooling=1..8 width=16..64 batch=128..1024",
    "moe": "moe dp|expert features=32..256 width=32..256 hidden=64..512 tokens=16..64 samples=8..32 batch=8",
}
RANKS = (1, 2)
LAUNCHES = 2
CLOCKS = ("wall", "cpu")


def plans(options) -> list[dict]:
    """A row per model, number of ranks, clock; and a row per clock over all."""
    rows: list[dict] = []
    progress = Progress("predict", quiet=options.quiet)
    cases = [
        (name, ranks) for name in SPACES for ranks in RANKS if not options.model or name in options.model
    ]
    with tempfile.TemporaryDirectory() as directory:
        for number, (name, ranks) in enumerate(cases):
            progress.show(number / len(cases), f"{name} on {ranks}")
            rows += of_model(Path(directory) / f"{name}-{ranks}", name, ranks, options)
    progress.clear()
    for clock in CLOCKS:
        own = [each for row in rows if row["clock"] == clock for each in row["raw"]]
        rows.append(summary("all", clock, own))
    return rows


def of_model(scratch: Path, name: str, ranks: int, options) -> list[dict]:
    """Calibrates, prices and runs the plans of one model on a number of ranks; returns a row per clock."""
    from miniapps.calibrate.plans import drawing, space_of
    from miniapps.partition.pricing.program import program_of
    from miniapps.partition.pricing.space import prepared
    from miniapps.untrusted.program import to_json

    scratch.mkdir()
    text = f"{SPACES[name]} ranks={ranks}"
    what = [word for part in ("programs", "collectives", "noise") for word in ("--what", part)]
    calibrated = ["miniapps.calibrate", "--budget", str(options.budget), *what, "--plan", text, "--programs",
                  str(options.programs), "--no-progress", "--out", str(scratch / "cal")]  # fmt: skip
    start(calibrated, ranks)
    rng, space = np.random.default_rng([7, ranks]), space_of(text)
    drawn = list(dict.fromkeys(str(space.draw(rng)) for _ in range(options.plans)))
    files = []
    for number, each in enumerate(drawn):
        one, own = space_of(each).draw(rng), drawing(name)
        program = program_of(*prepared(one)[:2], one.level, each) if own is None else own.program(one)
        files.append(scratch / f"{number}.json")
        files[-1].write_bytes(to_json(program))
    priced = {
        clock: json.loads(
            start(["analysis", "price", *map(str, files), "--calibration", str(scratch / "cal"), "--clock", clock,
                   "--json"])
        )["tables"]["plans"]
        for clock in CLOCKS
    }  # fmt: skip
    launches = [steps_of(drawn, ranks) for _ in range(LAUNCHES)]
    return [
        summary(
            f"{name} on {ranks}", clock, compared(drawn, priced[clock], [each[clock] for each in launches])
        )
        for clock in CLOCKS
    ]


def steps_of(drawn: Sequence[str], ranks: int) -> dict[str, list[float]]:
    """{clock: median seconds of a step of each plan}, of one launch."""
    command = [*mpirun(), "-n", str(ranks), sys.executable, "-m", "benchmarks.predict.plan_steps", *drawn]
    return json.loads(output_of(command, cwd=None).splitlines()[-1])


def compared(drawn: Sequence[str], priced: Sequence[dict], launches: Sequence[Sequence[float]]) -> list[dict]:
    """A row per plan that was priced: predicted quantiles and the medians of the launches."""
    by = {row["title"]: row for row in priced}
    return [
        {"plan": plan, "predicted_s": by[plan]["p50_s"], "low_s": by[plan]["p10_s"], "high_s": by[plan]["p90_s"],
         "measured_s": list(own), "extrapolated": by[plan]["extrapolated"]}
        for plan, own in zip(drawn, zip(*launches, strict=True), strict=True)
        if plan in by  # else it calls a kernel that the calibration's draws did not
    ]  # fmt: skip


def summary(what: str, clock: str, raw: list[dict]) -> dict:
    """The errors of plans, their floor, their bias, and how many are within the interval."""
    off = [np.log(np.median(each["measured_s"]) / each["predicted_s"]) for each in raw]
    apart = [abs(np.log(each["measured_s"][0] / each["measured_s"][1])) for each in raw]
    inside = [each["low_s"] <= seconds <= each["high_s"] for each in raw for seconds in each["measured_s"]]
    return {
        "part": "plans", "what": f"{what}, {clock}", "clock": clock,
        "error": mean_error([float(np.expm1(abs(x))) for x in off]),
        "floor": mean_error([float(np.expm1(x)) for x in apart]),
        "bias": float(np.mean(off)), "inside": float(np.mean(inside)), "runs": len(inside), "best": 0, "compared": 0,
        "targets": len(raw), "rounds": 1, "busy": 0, "raw": raw,
    }  # fmt: skip
