"""What training by a plan costs: guarantees, one rank against eager torch, utilisation, messages.

    python -m benchmarks.apps.partition --json benchmarks/results/partition.json

model        each model on one and two ranks along batch: time per step under layout over that under none; on one rank
             that under none over eager torch; processor time, the ways in turn
utilisation  of GPT with width 512, by the clock and by processor time, and that of eager torch on one rank: model FLOPs
             (miniapps.partition.graphs.flops) / (time x ranks x rate of our matmul at 512^3 on one core, in the same
             run); forward and backward, without the optimiser

Rows of each model have all-reduces and bytes that a rank sends per step, too.

Each case is one launch of `mpirun -n RANKS python -m benchmarks.apps.partition_steps`.
"""

import json
import os
import statistics
import subprocess
import sys

from benchmarks.harness.launching import ROOT, mpirun
from benchmarks.harness.results import parts_parser, run_parts
from benchmarks.harness.turns import ratio

# Sizes of the decks, at which kernels and not Python take the time.
DECKS = {
    "mlp": "samples=256,batch=8,features=784,width=512",
    "gpt": "samples=8,batch=4,tokens=64,width=256,feedforward=1024,vocabulary=512",
    "unet": "samples=4,batch=4,height=64,width=64,filters=16",
}
# For the utilisation: 8 heads of 64, as many tokens as torch's kernels like.
WIDE = "samples=8,batch=4,tokens=128,width=512,heads=8,feedforward=2048,vocabulary=512"


def steps(name: str, ranks: int, options, sizes: str = "") -> dict:
    """What one launch measured, with the sizes of the deck where none are given."""
    words = [name, sizes or DECKS[name], str(options.rounds), f"data={ranks}:batch", "--quiet"]
    command = [*mpirun(), "-n", str(ranks), sys.executable, "-m", "benchmarks.apps.partition_steps", *words]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def model(options) -> list[dict]:
    """A row per model, ranks and figure."""
    rows = []
    for name in options.models.split(","):
        for ranks in options.ranks:
            found = steps(name, ranks, options)
            seconds = found["seconds"]
            what = f"{name}, {ranks} rank{'s' if ranks > 1 else ''}"

            def row(figure, value, raw=(), what=what):
                rows.append({"what": what, "figure": figure, "value": value, "raw": list(raw)})

            row("layout / none", ratio(seconds["layout"], seconds["none"]), seconds["layout"])
            if "eager" in seconds:
                row("none / eager torch", ratio(seconds["none"], seconds["eager"]), seconds["none"])
            for level in ("none", "layout"):
                median = statistics.median(found["wall"][level])
                row(f"{level}, s per step", median, found["wall"][level])
                row(f"{level}, utilisation", found["flops"] / (median * ranks * found["rate"]))
            row("all-reduces per step", found["allreduces"])
            row("bytes per step, of a rank", found["nbytes"])
    return rows


def utilisation(options) -> list[dict]:
    """A row per ranks and way: GPT of width 512, by the clock and by processor time."""
    rows = []
    for ranks in options.ranks:
        found = steps("gpt", ranks, options, WIDE)
        for way, wall in found["wall"].items():
            for clock, seconds in (("clock", wall), ("processor time", found["seconds"][way])):
                used = [found["flops"] / (one * ranks * found["rate"]) for one in seconds]
                what = f"gpt of width 512, {ranks} rank{'s' if ranks > 1 else ''}, {way}"
                value = {
                    "median": statistics.median(used),
                    "min": min(used),
                    "max": max(used),
                    "n": len(used),
                }
                rows.append({"what": what, "figure": f"utilisation by {clock}", "value": value, "raw": used})
        rows.append({"what": what, "figure": "GFLOP/s of a core", "value": found["rate"] / 1e9})
    return rows


PARTS = {"model": model, "utilisation": utilisation}


def main(argv=None) -> None:
    """Measure."""
    parser = parts_parser("apps.partition", __doc__, PARTS, rounds=7)
    parser.add_argument("--models", default=",".join(DECKS), help="(default %(default)s)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="(default %(default)s)")
    run_parts("training by a plan", parser, PARTS, argv)


if __name__ == "__main__":
    main()
