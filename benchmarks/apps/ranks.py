"""Times verifiable and unequal runs: the costs of the chain of heads and of `--duplicate`, the gain of `--shares auto`.

    python -m benchmarks.apps.ranks --json benchmarks/results/ranks.json

chain       2 ranks: CPU time of the chain on rank 0 as a fraction of this rank's CPU time in the repeat (run), and in
            its steps alone (steps); solver with a checkpoint every 10 iterations, coupled every 10 steps, training
            every 20
shares      2 ranks; --fault slow@ slows the second by --factor. even: time per step if each keeps half of the blocks;
            auto: time from the second checkpoint on, after blocks have moved; both as ratios to the ideal: the time on
            ranks of full speed times p / (p - 1 + 1 / factor), round by round
duplicates  2 ranks: the time that --duplicate FRACTION adds to a step, divided by FRACTION of the step
checkpoints 2 ranks: bytes of a checkpoint of coupled, deck S, after 20 steps, by --checkpoint-bits
clean       results computed by two sound ranks, and the number of different ones

A step is the median of the region `step` on rank 0. coupled: a grid of 256 x 256 in blocks of 16 x 16; training: the
cnn of deck M, a batch of 128 in micro-batches of 4, on blobs.
"""

import re
from pathlib import Path

import numpy as np

from benchmarks.harness.launching import launch
from benchmarks.harness.results import parts_parser, row, run_parts
from benchmarks.harness.turns import in_turn, ratio
from miniapps.trace import read
from miniapps.trace.schema import CHAIN_TIME, THREAD_TIME

RANKS, EVERY, STEPS = 2, 8, 32
APPS = {
    "coupled": ("--set", "grid.nx=256", "--set", "grid.ny=256"),
    "training": ("--deck", "M", "--data", "blobs", "--batch", "128", "--set", "training.micro=4",
                 "--evaluate-every", "0"),
}  # fmt: skip
CHAINED = {
    "solver": ("--deck", "S", "--checkpoint-every", "10"),
    "coupled": ("--deck", "S", "--steps", "40", "--checkpoint-every", "10"),
    "training": ("--data", "blobs", "--steps", "60", "--checkpoint-every", "20"),
}
CLEAN = (
    "--set",
    "grid.nx=256",
    "--set",
    "grid.ny=256",
    "--set",
    "grid.bx=4",
    "--set",
    "grid.by=4",
    "--duplicate",
    "1",
)


def look(run: Path) -> dict:
    """{"step": median seconds of a step from the second checkpoint on, "shares": the last chosen shares}."""
    trace = read(run / "rank-00000.h5", ["events", "choices"])
    events, choices = trace.tables["events"], trace.tables["choices"]
    own = (events["name"] == trace.names.index("step")) & (events["step"] > 2 * EVERY)
    chosen = trace.names[choices["choice"][-1]] if len(choices["choice"]) else ""
    return {"step": 1e-9 * float(np.median((events["end"] - events["start"])[own])), "shares": chosen}


def spent(run: Path) -> dict:
    """{"chain", "steps"}: seconds of CPU time of rank 0."""
    trace = read(run / "rank-00000.h5", ["usage"])
    usage = trace.tables["usage"]
    named = {"chain": CHAIN_TIME, "steps": THREAD_TIME}
    return {
        key: float(usage["value"][usage["name"] == trace.names.index(name)].sum())
        for key, name in named.items()
    }


def chain(options) -> list[dict]:
    """The cost of heads, as fractions of CPU time, which other programs hardly change."""
    rows = []
    for app, way in CHAINED.items():
        calls = {
            app: lambda app=app, way=way: launch(
                RANKS, f"miniapps.{app}", (*way, "--guarantee", "layout"), look=spent
            )
        }
        runs = in_turn(calls, options.rounds, options.quiet)[app]
        own = [run["chain"] for run in runs]
        for what, whole in (("run", "cpu_s"), ("steps", "steps")):
            figure = ratio(own, [run[whole] for run in runs])
            rows.append(row("chain", f"{app}, chain / {what}", figure, own))
    return rows


def rounds(app: str, ways: dict[str, tuple[str, ...]], options) -> dict[str, list[dict]]:
    """The results of every variant of `app` in every round; raises AssertionError if bits differ."""
    common = (*APPS[app], "--guarantee", "layout", "--steps", str(STEPS), "--checkpoint-every", str(EVERY))
    calls = {
        name: lambda way=way: launch(RANKS, f"miniapps.{app}", (*common, *way), look=look)
        for name, way in ways.items()
    }
    runs = in_turn(calls, options.rounds, options.quiet)
    states = {run["fingerprints"][0] for results in runs.values() for run in results}
    assert len(states) == 1, f"{app}: {len(states)} results"
    return runs


def shares(options) -> list[dict]:
    """Ratios of even and auto to the ideal."""
    slow = ("--fault", f"slow@step=1,rank=1,factor={options.factor}")
    rows = []
    for app in APPS:
        runs = rounds(app, {"equal": (), "even": slow, "auto": (*slow, "--shares", "auto")}, options)
        ideal = [run["step"] * RANKS / (RANKS - 1 + 1 / options.factor) for run in runs["equal"]]
        for name in ("even", "auto"):
            times = [run["step"] for run in runs[name]]
            assigned = " ".join(sorted({run["shares"] for run in runs[name]} - {""}))
            what = f"{app}, {name} / ideal, factor {options.factor}" + f", blocks {assigned}" * bool(assigned)
            rows.append(row("shares", what, ratio(times, ideal), times))
    return rows


def duplicates(options) -> list[dict]:
    """(time with / time without - 1) / fraction."""
    rows = []
    for app in APPS:
        runs = rounds(app, {"": (), "twice": ("--duplicate", str(options.fraction))}, options)
        plain, twice = ([run["step"] for run in runs[name]] for name in ("", "twice"))
        more = [(b - a) / options.fraction for a, b in zip(plain, twice, strict=True)]
        what = f"{app}, --duplicate {options.fraction:g}: cost / fraction of a step"
        rows.append(row("duplicates", what, ratio(more, plain), twice))
    return rows


def checkpoints(options) -> list[dict]:
    """Bytes, and the share of the bytes of a checkpoint with all bits."""
    common = ("--deck", "S", "--steps", "20", "--checkpoint-every", "20", "--guarantee", "layout")
    sizes = {
        bits: launch(
            RANKS,
            "miniapps.coupled",
            (*common, *(("--checkpoint-bits", str(bits)) if bits else ())),
            look=lambda run: {"bytes": sum(file.stat().st_size for file in (run / "checkpoints").iterdir())},
        )["bytes"]
        for bits in (None, 52, 36, 23, 12, 8)
    }
    return [
        {"part": "checkpoints", "what": bits or "not given", "figure": size, "share": size / sizes[None]}
        for bits, size in sizes.items()
    ]


def clean(options) -> list[dict]:
    """The number of equal results on sound ranks, where every result is computed twice; 0 if the check fails."""
    steps = ("--steps", str(-(-options.clean // (4 * 64 * 64))))
    run = launch(RANKS, "miniapps.coupled", (*CLEAN, "--guarantee", "layout", *steps))
    (check,) = (check for check in run["checks"] if check["name"] == "duplicates")
    count = int(re.match("[0-9]+", check["detail"])[0]) if check["passed"] else 0
    return [row("clean", "results of sound ranks, none differs", count, check["detail"])]


def main(argv=None) -> None:
    """Measures the requested parts."""
    parts = {
        "chain": chain,
        "shares": shares,
        "duplicates": duplicates,
        "checkpoints": checkpoints,
        "clean": clean,
    }
    parser = parts_parser("apps.ranks", __doc__, parts, rounds=5)
    parser.add_argument("--factor", type=int, default=2, help="slowdown of the second rank (default 2)")
    parser.add_argument(
        "--fraction", type=float, default=0.2, help="fraction of the blocks computed twice (default 0.2)"
    )
    parser.add_argument(
        "--clean", type=int, default=10**6, help="number of results of sound ranks (default 10^6)"
    )
    run_parts("ranks", parser, parts, argv)


if __name__ == "__main__":
    main()
