"""Times the coupled mini-app: guarantees, numbers of ranks, and 64 ranks on one small machine.

    python -m benchmarks.apps.coupled                      # all parts
    python -m benchmarks.apps.coupled guarantee efficiency --rounds 7 --json benchmarks/results/coupled.json

guarantee    deck M on 4 ranks: ratio of the time per step under run, layout and exact to the time under none, round by
             round; none is the usual fast method: the library's all-reduce, one network call per rank, NumPy sums
efficiency   deck M: time per step on 1 rank over P times the time on P ranks, P = min(4, cores)
sizes        decks S, M and L on one rank: iterations per Poisson solve, time per point and step, ratio of L to M
inference    deck M under layout: ratio of the time per step, and on 1 rank of processor time, of --inference static (a
             schedule evaluates the closure in one call per rank) to torch (chains of kernels.contract); for a network
             that learns and for one that does not, on 1 rank and on P
coarse       decks S and M on one rank, no closure: ratio of the time per step, the coarsest grid solved by products
             with tables of waves, to the time with NumPy's Fourier transforms, whose bits depend on the processor; of
             processor time too, which has the start of a run in it
many         deck S on 64 ranks: wall time of the whole job, and memory of all ranks together (PSS)
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from unittest.mock import patch

import numpy as np
from mpi4py import MPI

from benchmarks.apps.guarantees import guarantee_costs, processor_time
from benchmarks.harness.launching import launch, mpirun
from benchmarks.harness.results import parts_parser, row, run_parts
from benchmarks.harness.turns import in_turn, ratio
from miniapps.coupled import APP as COUPLED
from miniapps.coupled import multigrid
from miniapps.runner.main import main as start

APP = "miniapps.coupled"


def seconds_per_step(ranks: int, *options) -> float:
    """FOM `steps` of one run; without start-up."""
    return launch(ranks, APP, options)["fom"]["steps"]["value"]


def guarantee(options) -> list[dict]:
    """Cost of the guarantees relative to none."""
    common = ("--deck", "M", "--steps", str(options.steps))
    return guarantee_costs(lambda level: seconds_per_step(4, *common, "--guarantee", level), options, "")


def efficiency(options) -> list[dict]:
    """Strong scaling of deck M inside one machine."""
    ranks = min(4, len(os.sched_getaffinity(0)))
    common = ("--deck", "M", "--steps", str(options.steps), "--guarantee", "layout")
    times = in_turn(
        {n: lambda n=n: seconds_per_step(n, *common) for n in (1, ranks)}, options.rounds, options.quiet
    )
    value = ratio(times[1], [ranks * t for t in times[ranks]])
    return [row("efficiency", f"T(1) / ({ranks} T({ranks}))", value, times[ranks])]


def sizes(options) -> list[dict]:
    """The time per point and step on decks of growing size."""
    solves: dict[str, list[float]] = {deck: [] for deck in "SML"}

    def nanoseconds(deck: str) -> float:
        fom = launch(1, APP, ("--deck", deck, "--steps", str(options.steps)))["fom"]
        solves[deck].append(fom["cg_iterations"]["value"])
        return 1e3 / fom["updates"]["value"]

    costs = in_turn(
        {deck: lambda deck=deck: nanoseconds(deck) for deck in solves}, options.rounds, options.quiet
    )
    rows = []
    for deck, times in costs.items():
        rows += [
            row("sizes", f"deck {deck}, iterations per solve", median(solves[deck]), solves[deck]),
            row("sizes", f"deck {deck}, ns per point and step", median(times), times),
        ]
    return [*rows, row("sizes", "L / M", ratio(costs["L"], costs["M"]))]


def inference(options) -> list[dict]:
    """Ratios of the time of a step with a static schedule to the time with the chains of --inference torch."""
    common = ("--deck", "M", "--steps", str(options.steps), "--guarantee", "layout")
    rows = []
    for closure in ("surrogate", "online"):
        for ranks in sorted({1, min(4, len(os.sched_getaffinity(0)))}):

            def costs(backend: str, closure=closure, ranks=ranks) -> dict[str, float]:
                given = (*common, "--closure", closure, "--inference", backend)
                ended = launch(ranks, APP, given, look=processor_time)
                times = {"ms": 1e3 * ended["fom"]["steps"]["value"]}
                # With several ranks processor time includes waiting for other ranks.
                return times | ({"CPU ms": 1e3 * ended["cpu_s"] / options.steps} if ranks == 1 else {})

            turns = in_turn(
                {backend: partial(costs, backend) for backend in ("torch", "static")},
                options.rounds,
                options.quiet,
            )
            where = f"--closure {closure}, {ranks} rank{'s' * (ranks > 1)}"
            for clock in turns["torch"][0]:
                times = {backend: [cost[clock] for cost in own] for backend, own in turns.items()}
                each = {f"{backend}, {clock} per step": (median(own), own) for backend, own in times.items()}
                each[f"static / torch, {clock}"] = ratio(times["static"], times["torch"]), []
                rows += [
                    row("inference", f"{where}: {what}", figure, raw) for what, (figure, raw) in each.items()
                ]
    return rows


def coarse(options) -> list[dict]:
    """Ratios of the time of a step with products to the time with NumPy's transforms, of runs in this process."""
    solvers, rows = {"products": multigrid.direct, "transforms": by_transforms}, []
    for deck in ("S", "M"):

        def costs(solver: str, deck=deck) -> tuple[float, float]:
            given = [
                "--deck",
                deck,
                "--steps",
                str(options.steps),
                "--closure",
                "none",
                "--no-progress",
                "--log-level",
                "error",
            ]
            begin = time.process_time()
            with tempfile.TemporaryDirectory() as scratch, io.StringIO() as printed:
                with (
                    patch.object(multigrid, "direct", solvers[solver]),
                    contextlib.redirect_stdout(printed),
                ):
                    code = start(COUPLED, [*given, "--out", f"{scratch}/run"], MPI.COMM_SELF)
                if code:
                    raise RuntimeError(printed.getvalue())
                result = json.loads(Path(scratch, "run", "result.json").read_text())
            return result["fom"]["steps"]["value"], (time.process_time() - begin) / options.steps

        turns = in_turn({solver: partial(costs, solver) for solver in solvers}, options.rounds, options.quiet)
        each = {}
        for clock, what in enumerate(("ms per step", "CPU ms per step")):
            times = {solver: [cost[clock] for cost in own] for solver, own in turns.items()}
            each |= {f"{solver}, {what}": (1e3 * median(own), own) for solver, own in times.items()}
            each[f"products / transforms, {what}"] = ratio(times["products"], times["transforms"]), []
        rows += [row("coarse", f"deck {deck}: {what}", figure, raw) for what, (figure, raw) in each.items()]
    return rows


def by_transforms(ny: int, nx: int, inverse_h2: float):
    """`multigrid.direct` by NumPy's Fourier transforms."""
    y, x = (4.0 * np.sin(np.pi * np.arange(n) / n) ** 2 for n in (ny, nx))
    values = (y[:, None] + x[: nx // 2 + 1]) * inverse_h2
    values[0, 0] = np.inf
    return lambda r: np.fft.irfft2(np.fft.rfft2(r) / values, s=(ny, nx))


def many(options) -> list[dict]:
    """Wall time and memory of 64 ranks of deck S, launched as by a user."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [*mpirun(), "-n", "64", sys.executable, "-m", APP, "--deck", "S", "--out", f"{scratch}/run"]
        begin, peak = time.perf_counter(), 0
        with open(f"{scratch}/output", "w+") as output:
            job = subprocess.Popen(command, stdout=output, stderr=output)
            while job.poll() is None:
                peak = max(peak, memory_of_children(job.pid))
                time.sleep(2.0)
            wall = time.perf_counter() - begin
            if job.returncode:
                output.seek(0)
                raise RuntimeError(output.read())
    return [
        row("many", "wall, s", wall, [wall]),
        row("many", "memory of all ranks, GiB", peak / 2**30, [peak]),
    ]


def memory_of_children(pid: int) -> int:
    """Bytes of all descendants, shared pages counted once (proportional set size)."""
    total, pending = 0, [pid]
    while pending:
        current = pending.pop()
        try:
            for thread in Path(f"/proc/{current}/task").iterdir():
                pending += map(int, (thread / "children").read_text().split())
            for line in Path(f"/proc/{current}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += 1024 * int(line.split()[1])
        except (OSError, ValueError):  # it has just ended
            continue
    return total


PARTS = {
    "guarantee": guarantee,
    "efficiency": efficiency,
    "sizes": sizes,
    "inference": inference,
    "coarse": coarse,
    "many": many,
}


def main(argv=None) -> None:
    """Measures the requested parts."""
    parser = parts_parser("apps.coupled", __doc__, PARTS, rounds=5)
    parser.add_argument("--steps", type=int, default=10, help="time steps per run (default %(default)s)")
    run_parts("coupled", parser, PARTS, argv)


if __name__ == "__main__":
    main()
