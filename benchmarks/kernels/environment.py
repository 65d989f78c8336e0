"""Times the guard of the floating-point environment: calls in this checkout and in another one, launch by launch.

    git worktree add ../before COMMIT; (cd ../before; python setup.py build_ext --inplace)
    python -m benchmarks.kernels.environment --before ../before --json benchmarks/results/environment.json

Sums of a vector (one process) and all-reduces (1 and 2 ranks) of 8 bytes to 1 KiB. A launch reports the least time per
call of several samples. The two checkouts are launched in turn, and differences are within a round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.harness.launching import mpirun
from benchmarks.harness.results import add_quiet, machine, report
from benchmarks.harness.turns import in_turn

HERE = Path(__file__).resolve()
BYTES = (8, 64, 256, 1024)
ORDERINGS = ("direct", "direct in exact", "ring")
CALLS, SAMPLES = 1000, 15


def main(argv=None) -> None:
    """Measures and reports."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels.environment",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--before", required=True, metavar="DIR", help="the other checkout, built")
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count (default %(default)s)")
    parser.add_argument("--json", help="write table and raw values to this file")
    add_quiet(parser)
    asked = parser.parse_args(argv)
    where = machine()
    report("kernels.environment", compare(asked), where, asked.json)


def compare(asked: argparse.Namespace) -> list[dict]:
    """A row for every call and number of bytes."""
    checkouts = {"before": Path(asked.before).resolve(), "now": HERE.parents[2]}
    rows = []
    for ranks in (1, 2):
        runs = {name: launch(path, ranks) for name, path in checkouts.items()}
        times = in_turn(runs, asked.rounds, asked.quiet)
        for call in times["now"][0]:
            before, now = ([one[call] * 1e9 for one in times[name]] for name in ("before", "now"))
            more = [b - a for a, b in zip(before, now, strict=True)]
            rows.append(
                {
                    "ranks": ranks,
                    "call": call,
                    "ns before": round(statistics.median(before)),
                    "ns now": round(statistics.median(now)),
                    "ns more": f"{statistics.median(more):.0f} ({min(more):.0f} to {max(more):.0f})",
                    "raw": [before, now],
                }
            )
    return rows


def launch(checkout: Path, ranks: int):
    """A function that times the calls of a checkout in a new launch and returns {call: seconds}."""

    def run() -> dict[str, float]:
        command = [*mpirun(), "-n", str(ranks), sys.executable, "-P", str(HERE), str(checkout)]
        env = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=True, cwd=checkout)
        return json.loads(done.stdout)

    return run


def time_calls() -> None:
    """Prints the times of calls of the kernels on the path, as JSON on rank 0."""
    from time import perf_counter

    import numpy as np
    from mpi4py import MPI

    import kernels.sums  # registers its variants
    from kernels.allreduce import Reduction, plan
    from kernels.registry import get

    assert Path(kernels.sums.__file__).is_relative_to(sys.argv[1]), kernels.sums.__file__
    comm, found = MPI.COMM_WORLD, {}

    def least(name: str, call) -> None:
        samples = []
        for _ in range(SAMPLES):
            comm.Barrier()
            begin = perf_counter()
            for _ in range(CALLS):
                call()
            samples.append((perf_counter() - begin) / CALLS)
        found[name] = min(samples)

    for size in BYTES:
        x = np.random.default_rng(comm.rank).standard_normal(size // 8)
        if comm.size == 1:
            exact = get("sum", "exact", "native")
            least(f"sum exact {size} B", lambda x=x, exact=exact: exact(x))
        for label in ORDERINGS:
            reducer = plan(comm, Reduction.named(label, x.shape, "float64"))
            rows = x[None]
            least(f"all-reduce {label} {size} B", lambda reducer=reducer, rows=rows: reducer(rows))
            reducer.free()
    if comm.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    if len(sys.argv) == 2 and Path(sys.argv[1]).is_dir():
        time_calls()
    else:
        main()
