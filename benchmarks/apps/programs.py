"""Times a user's program that records itself, and a communicator whose sums have a guarantee.

    python -m benchmarks.apps.programs                      # both parts
    python -m benchmarks.apps.programs record --rounds 7 --json benchmarks/results/programs.json

record    a step of 10 ms with 10 MB of state per rank, with one rank per core: ratio of recorded steps (step, region,
          fingerprint of the state, value) to plain steps, in turn within one run
wrap      Allreduce of 1, 1,000 and 1,000,000 float64: ratio of the wrapped communicator to MPI's own, and to the
          planned reducer that it uses
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

from benchmarks.harness.launching import mpirun
from benchmarks.harness.results import parts_parser, row, run_parts
from benchmarks.harness.turns import ratio, samples

MEGABYTES, STEP_S, PAIRS = 10, 0.010, 60
LENGTHS = (1, 1_000, 1_000_000)
LEVELS = ("run", "layout", "exact")


def record_rows(options) -> list[dict]:
    """Ratios of recorded steps to plain ones."""
    rows = []
    for ranks in sorted({1, len(os.sched_getaffinity(0))}):
        rounds = [_measured("record", ranks) for _ in range(options.rounds)]
        for name in ("recorded / plain", "fingerprint / plain"):
            figure = ratio([r[name] for r in rounds], [1.0] * len(rounds))
            rows.append(row("record", f"{name}, ranks: {ranks}", figure, rounds))
    return rows


def wrap_rows(options) -> list[dict]:
    """Ratios of the wrapped communicator to MPI's own call and to the planned reducer."""
    rows = []
    rounds = [_measured("wrap", 2) for _ in range(options.rounds)]
    for n in LENGTHS:
        for level in LEVELS:
            ours = [r[f"{level} {n}"] for r in rounds]
            for peer in ("library", f"planned {level}"):
                figure = ratio(ours, [r[f"{peer} {n}"] for r in rounds])
                rows.append(row("wrap", f"{level}, {n} float64 / {peer}", figure, ours))
    return rows


PARTS = {"record": record_rows, "wrap": wrap_rows}


def record() -> dict:
    """Ratios of a recorded step, and of its fingerprint, to a plain step next to it in time: medians over pairs."""
    import numpy as np
    from mpi4py import MPI

    import fpna

    comm = MPI.COMM_WORLD
    state = np.random.default_rng(comm.rank).standard_normal(MEGABYTES * 10**6 // 8)
    folder = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    seconds: dict[str, list[float]] = {"plain": [], "recorded": [], "fingerprint": []}

    def work():
        """Passes over the state for about the time of a step; every step makes the same number."""
        for _ in range(passes):
            np.multiply(state, 1.0000001, out=state)

    passes = 1
    passes = comm.allreduce(math.ceil(STEP_S / min(samples(work))), MPI.MAX)
    with fpna.record(Path(folder) / "run", comm, name="benchmark") as r:
        for k in range(2 * PAIRS):
            recorded = k % 4 in (0, 3)  # pairs in either order
            comm.Barrier()
            begin = time.perf_counter()
            if recorded:
                r.step(k)
                with r.region("work"):
                    work()
                before = time.perf_counter()
                r.fingerprint("state", state, block=comm.rank)
                seconds["fingerprint"].append(time.perf_counter() - before)
                r.value("first", state[0])
            else:
                work()
            seconds["recorded" if recorded else "plain"].append(time.perf_counter() - begin)
    plain = statistics.median(seconds["plain"])
    # Differences of neighbours, not ratios: noise in a denominator makes ratios larger.
    more = statistics.median(
        a - b for a, b in zip(seconds["recorded"][1:], seconds["plain"][1:], strict=True)
    )
    fingerprint = statistics.median(seconds["fingerprint"])
    return {"recorded / plain": 1 + more / plain, "fingerprint / plain": fingerprint / plain, "plain": plain}


def wrap() -> dict:
    """Seconds of a call, by its name: `library`, `planned LEVEL` or LEVEL, with the length."""
    import numpy as np
    from mpi4py import MPI

    import fpna
    from kernels.allreduce import plan
    from miniapps.runner.policy import resolve

    warnings.simplefilter("ignore")
    world, seconds = MPI.COMM_WORLD, {}
    for n in LENGTHS:
        x, total = np.random.default_rng(world.rank).standard_normal(n), np.empty(n)
        calls = {"library": partial(world.Allreduce, x, total)}
        for level in LEVELS:
            ordering, accumulation = resolve(level, None, None).of(n)
            planned = plan(world, ordering, n, accumulation=accumulation)
            calls[f"planned {level}"] = partial(planned, x[None], total)
            calls[level] = partial(fpna.wrap(world, level).Allreduce, x, total, blocks=world.rank)
        count = max(5, min(2000, 2_000_000 // n))
        for name, call in calls.items():
            call()
            best = []
            for _ in range(5):
                world.Barrier()
                begin = time.perf_counter()
                for _ in range(count):
                    call()
                best.append((time.perf_counter() - begin) / count)
            seconds[f"{name} {n}"] = statistics.median(best)
    return seconds


def _measured(what: str, ranks: int) -> dict:
    """The result of `record` or `wrap` on rank 0 of a launch."""

    command = [
        *mpirun(),
        "-n",
        str(ranks),
        sys.executable,
        "-m",
        "benchmarks.apps.programs",
        "--measure",
        what,
    ]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main(argv=None) -> None:
    """Measures and reports; with --measure, under mpirun, measures one part."""
    if "--measure" in sys.argv:
        from mpi4py import MPI

        seconds = {"record": record, "wrap": wrap}[sys.argv[-1]]()
        if MPI.COMM_WORLD.rank == 0:
            print(json.dumps(seconds))
        return
    run_parts("apps.programs", parts_parser("apps.programs", __doc__, PARTS, 5), PARTS, argv)


if __name__ == "__main__":
    main()
