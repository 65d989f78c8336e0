"""Times of sums under guarantee `layout`, beside the MPI library's and, with --than, beside another checkout's.

    python -m benchmarks.allreduce.layout --than TREE --json out.json

Checkouts are launched in turn. In a launch, calls of the sum and of the library's Allreduce take turns. The time of a
call is the 10 % quantile over the rounds, since other load on the node only adds time. Ratios are within one launch;
shown are their median and range over launches. Bytes are those that a rank sends, counted by the schedules.
"""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.harness.launching import ROOT, launcher, output_of
from benchmarks.harness.results import parts_parser, run_parts
from benchmarks.harness.turns import in_turn, ratio

# layout_steps.py of this checkout, run with the modules of the measured checkout.
STEPS = f"import runpy; runpy.run_path({str(Path(__file__).with_name('layout_steps.py'))!r})['main']()"
LENGTHS = {
    "short": (1, 16, 17, 64, 256, 1024, 4096),
    "long": (1 << 14, 1 << 16, 1 << 18, 1 << 20),
    "longest": (1 << 22, 1 << 24),
    "several": (16, 1024, 1 << 16, 1 << 20),
}
SEVERAL = 4  # contributions of a rank, in the part of that name
LIMIT_S = 600


def measured(part: str, options) -> list[dict]:
    """The rows of a part: every type, number of ranks and length."""
    trees = {"here": ROOT} | ({"before": options.than.resolve()} if options.than else {})
    contributions = SEVERAL if part == "several" else 1
    rows = []
    for dtype, ranks in product(options.dtypes, options.ranks):

        def launch(tree: Path, dtype=dtype, ranks=ranks) -> list[dict]:
            return launched(tree, ranks, dtype, contributions, LENGTHS[part], options.mpi)

        def call(name: str, launch=launch):
            return lambda: launch(trees[name])

        launches = in_turn(
            {name: call(name) for name in trees}, options.rounds, options.quiet, f"layout {part}"
        )
        for i, n in enumerate(LENGTHS[part]):
            for name in trees:
                of_length = [one[i] for one in launches[name]]
                ours, library = ([low(one[key]) for one in of_length] for key in ("layout", "library"))
                rows.append(
                    {
                        "part": part, "rule": name, "dtype": dtype, "ranks": ranks, "contributions": contributions,
                        "elements": n, "us": float(np.median(ours) * 1e6), "/ library": ratio(ours, library),
                        "bytes": of_length[0]["bytes"],
                    }
                )  # fmt: skip
    return rows


def low(times: list[float]) -> float:
    return float(np.quantile(times, 0.1))


def launched(tree: Path, ranks: int, dtype: str, contributions: int, lengths, library: str) -> list[dict]:
    """The output of `layout_steps` on so many ranks with a checkout's modules."""
    command, extra = launcher(library)
    words = ["--dtype", dtype, "--contributions", str(contributions), "--lengths", *map(str, lengths)]
    command += ["-n", str(ranks), sys.executable, "-P", "-c", STEPS, *words]
    return json.loads(output_of(command, extra | {"PYTHONPATH": str(tree)}, LIMIT_S, tree))


def main(argv=None) -> None:
    """Measures the requested parts."""
    parts = {part: lambda options, part=part: measured(part, options) for part in LENGTHS}
    parser = parts_parser("allreduce.layout", __doc__, parts, 5)
    add = parser.add_argument
    add("--than", type=Path, metavar="TREE", help="another checkout, built, to compare with")
    add("--ranks", type=int, nargs="+", default=[2, 4, 16], help="default: 2 4 16")
    add("--dtypes", nargs="+", default=["float64", "float32"], help="default: float64 float32")
    add("--mpi", default="mpich", help="mpich or openmpi (default %(default)s)")
    run_parts("allreduce.layout", parser, parts, argv)


if __name__ == "__main__":
    main()
