"""What training by a plan costs: guarantees, one rank against eager torch, utilisation, messages.

    python -m benchmarks.apps.partition --json benchmarks/results/partition.json

model        each model on one and two ranks along batch: time per step under layout over that under none; on one rank
             that under none over eager torch; processor time, the ways in turn
utilisation  model FLOPs / (time per step x ranks x rate of our matmul at 512^3 on one core, in the same run)
messages     all-reduces and bytes that a rank sends per step

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


def steps(name: str, ranks: int, options) -> dict:
    """What one launch measured."""
    words = [name, DECKS[name], str(options.rounds), f"data={ranks}:batch", "--quiet"]
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


PARTS = {"model": model}


def main(argv=None) -> None:
    """Measure."""
    parser = parts_parser("apps.partition", __doc__, PARTS, rounds=7)
    parser.add_argument("--models", default=",".join(DECKS), help="(default %(default)s)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="(default %(default)s)")
    run_parts("training by a plan", parser, PARTS, argv)


if __name__ == "__main__":
    main()
