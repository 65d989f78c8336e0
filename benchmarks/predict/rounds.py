"""Code that the parts share: waiting for a quiet machine, commands of the suite, the mean of errors."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from benchmarks.harness.launching import mpirun, output_of

SPIN_S, QUIET_SHARE, AGAIN_S = 0.05, 0.95, 2.0


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


def mean_error(errors: list[float]) -> float:
    """The mean of errors exp(x) - 1, taken over x; NaN for an empty list."""
    return float(np.expm1(np.mean(np.log1p(errors)))) if errors else float("nan")
