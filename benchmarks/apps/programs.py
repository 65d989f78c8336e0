"""What a program of the user's pays for recording itself, and for a communicator whose sums keep a promise.

    python -m benchmarks.apps.programs                      # both parts
    python -m benchmarks.apps.programs record --rounds 7 --json benchmarks/results/programs.json

record    a step of 10 ms with 10 MB of state per rank, on as many ranks as cores: steps that are recorded (step,
          region, fingerprint of the state, value) over steps that are not, in turn within one run
wrap      Allreduce of 1, 1,000 and 1,000,000 float64 by the wrapped communicator over MPI's own, and over the planned
          reducer it stands on
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
from benchmarks.harness.results import parts_parser, run_parts
from benchmarks.harness.turns import ratio, samples

MEGABYTES, STEP_S, PAIRS = 10, 0.010, 60
LENGTHS = (1, 1_000, 1_000_000)
LEVELS = ("run", "layout", "exact")


def record_rows(options) -> list[dict]:
    """Recorded steps over those that are not."""
    rows = []
    for ranks in sorted({1, len(os.sched_getaffinity(0))}):
        rounds = [_measured("record", ranks) for _ in range(options.rounds)]
        for name in ("recorded / plain", "fingerprint / plain"):
            figure = ratio([r[name] for r in rounds], [1.0] * len(rounds))
            rows.append(
                {"part": "record", "what": f"{name}, ranks: {ranks}", "figure": figure, "raw": rounds}
            )
    return rows


def wrap_rows(options) -> list[dict]:
    """The wrapped communicator beside what it stands for and stands on."""
    rows = []
    rounds = [_measured("wrap", 2) for _ in range(options.rounds)]
    for n in LENGTHS:
        for level in LEVELS:
            ours = [r[f"{level} {n}"] for r in rounds]
            for peer in ("library", f"planned {level}"):
                figure = ratio(ours, [r[f"{peer} {n}"] for r in rounds])
                rows.append(
                    {"part": "wrap", "what": f"{level}, {n} float64 / {peer}", "figure": figure, "raw": ours}
                )
    return rows


PARTS = {"record": record_rows, "wrap": wrap_rows}


def record() -> dict:
    """A recorded step, and the fingerprint in it, over a plain step beside it in time: medians over pairs."""
    import numpy as np
    from mpi4py import MPI

    import fpna

    comm = MPI.COMM_WORLD
    state = np.random.default_rng(comm.rank).standard_normal(MEGABYTES * 10**6 // 8)
    folder = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    seconds: dict[str, list[float]] = {"plain": [], "recorded": [], "fingerprint": []}

    def work():
        """Passes over the state for the time of a step: counted once, so that every step does the same."""
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
    """Seconds of a call, by who makes it."""
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
    """What `record` or `wrap` returns on rank 0 of a launch."""

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
    """Measure and report; with --measure, under mpirun, one part of it."""
    if "--measure" in sys.argv:
        from mpi4py import MPI

        seconds = {"record": record, "wrap": wrap}[sys.argv[-1]]()
        if MPI.COMM_WORLD.rank == 0:
            print(json.dumps(seconds))
        return
    run_parts("apps.programs", parts_parser("apps.programs", __doc__, PARTS, 5), PARTS, argv)


if __name__ == "__main__":
    main()
