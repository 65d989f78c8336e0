"""What moving blocks to faster ranks gains where one rank is slower: `--shares auto` beside the ideal.

    python -m benchmarks.apps.shares --json benchmarks/results/shares.json

coupled    a grid of 256 x 256 in blocks of 16 x 16
training   the cnn of deck M, a batch of 128 in micro-batches of 4, on blobs

On 2 ranks the second is slowed by --factor (--fault slow@). even: time per step where each keeps half of the blocks;
auto: from the second checkpoint on, when blocks have moved; both over the ideal, the time on ranks of full speed times
p / (p - 1 + 1 / factor), round by round. A step is the median of the region `step` on rank 0.
"""

from pathlib import Path

import numpy as np

from benchmarks.harness.launching import launch
from benchmarks.harness.results import parts_parser, run_parts
from benchmarks.harness.turns import in_turn, ratio
from miniapps.trace import read

RANKS, EVERY, STEPS = 2, 8, 32
APPS = {
    "coupled": ("--set", "grid.nx=256", "--set", "grid.ny=256"),
    "training": ("--deck", "M", "--data", "blobs", "--batch", "128", "--set", "training.micro=4",
                 "--evaluate-every", "0"),
}  # fmt: skip


def seconds(run: Path) -> dict:
    """{"step": median seconds of a step from the second checkpoint on}, and what was chosen last."""
    trace = read(run / "rank-00000.h5", ["events", "choices"])
    events, choices = trace.tables["events"], trace.tables["choices"]
    own = (events["name"] == trace.names.index("step")) & (events["step"] > 2 * EVERY)
    chosen = trace.names[choices["choice"][-1]] if len(choices["choice"]) else ""
    return {"step": 1e-9 * float(np.median((events["end"] - events["start"])[own])), "shares": chosen}


def part(app: str, options) -> list[dict]:
    """Even and auto over the ideal."""
    common = (*APPS[app], "--guarantee", "layout", "--steps", str(STEPS), "--checkpoint-every", str(EVERY))
    slow = ("--fault", f"slow@step=1,rank=1,factor={options.factor}")
    ways = {"equal ranks": (), "even": slow, "auto": (*slow, "--shares", "auto")}
    runs = in_turn(
        {
            name: lambda way=way: launch(RANKS, f"miniapps.{app}", (*common, *way), look=seconds)
            for name, way in ways.items()
        },
        options.rounds,
        options.quiet,
    )
    ideal = [run["step"] * RANKS / (RANKS - 1 + 1 / options.factor) for run in runs["equal ranks"]]
    for other in ("even", "auto"):
        same = {run["fingerprints"][0] for run in [*runs["equal ranks"], *runs[other]]}
        assert len(same) == 1, f"{app}, {other}: {len(same)} results"
    return [
        {
            "part": app,
            "what": f"{name} / ideal, factor {options.factor}",
            "figure": ratio([run["step"] for run in runs[name]], ideal),
            "shares": " ".join(sorted({run["shares"] for run in runs[name]})),
            "raw": [run["step"] for run in runs[name]],
        }
        for name in ("even", "auto")
    ]


def main(argv=None) -> None:
    """Measure the parts that `argv` asks for."""
    parts = {app: lambda options, app=app: part(app, options) for app in APPS}
    parser = parts_parser("apps.shares", __doc__, parts, rounds=5)
    parser.add_argument(
        "--factor", type=int, default=2, help="by which the second rank is slowed (default 2)"
    )
    run_parts("shares", parser, parts, argv)


if __name__ == "__main__":
    main()
