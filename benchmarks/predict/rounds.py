"""Code that the parts share: waiting for a quiet machine, commands of the suite, launches, the mean of errors."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.harness.launching import mpirun, output_of

SPIN_S, QUIET_SHARE, AGAIN_S = 0.05, 0.95, 2.0
LAUNCHES = 3  # of a calibration, and of the runs that are compared with its prices


def spin(seconds: float) -> float:
    """Spins for `seconds`; returns the ratio of CPU time to wall time."""
    begin, used = time.perf_counter(), time.thread_time()
    while time.perf_counter() - begin < seconds:
        pass
    return (time.thread_time() - used) / (time.perf_counter() - begin)


def quiet(pool: ProcessPoolExecutor, cores: int, patience: float) -> bool:
    """Waits until all cores are free, at most `patience` seconds; returns whether they are."""
    end = time.monotonic() + patience
    while True:
        if min(pool.map(spin, [SPIN_S] * cores)) >= QUIET_SHARE:
            return True
        if time.monotonic() > end:
            return False
        time.sleep(AGAIN_S)


def start(words: list[str], ranks: int = 0) -> str:
    """The output of `python -m WORDS`, under mpirun if `ranks` is not 0. Raises RuntimeError if its exit code is not
    0."""
    command = [*([*mpirun(), "-n", str(ranks)] if ranks else []), sys.executable, "-m", *words]
    return output_of(command, cwd=None)


def calibrated(
    scratch: Path, plans: str, ranks: int, options, run: Callable[[list[str], int], str] = start
) -> Iterator[str]:
    """Calibrates in LAUNCHES launches with the space `plans` of plans; yields the directory of each, below `scratch`,
    when it is there. `run(words, ranks)`: the output of a command on all ranks."""
    parts = [word for part in ("programs", "collectives", "noise") for word in ("--what", part)]
    for number in range(LAUNCHES):
        out = str(scratch / f"calibration-{number}")
        run(["miniapps.calibrate", "--budget", str(options.budget), *parts, "--plan", plans, "--programs",
             str(options.programs), "--no-progress", "--out", out], ranks)  # fmt: skip
        yield out


def prices(files: Sequence[Path], calibrations: Sequence[str], clock: str) -> dict[str, list[dict]]:
    """The tables of `fpna price` of plans in files."""
    given = [word for path in calibrations for word in ("--calibration", path)]
    found: dict[str, list[dict]] = json.loads(
        start(["analysis", "price", *map(str, files), *given, "--clock", clock, "--json"])
    )["tables"]
    return found


def apart(seconds: Sequence[float]) -> float:
    """By how much two launches differ, as an error; the mean over all pairs of them."""
    return mean_error([float(np.expm1(abs(np.log(a / b)))) for a, b in combinations(seconds, 2)])


def mean_error(errors: list[float]) -> float:
    """The mean of errors exp(x) - 1, taken over x; NaN for an empty list."""
    return float(np.expm1(np.mean(np.log1p(errors)))) if errors else float("nan")
