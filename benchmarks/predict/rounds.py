"""What the parts share: rounds that begin when the machine is quiet, commands of ours, the mean of errors."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from benchmarks.harness.launching import mpirun, output_of

SPIN_S, QUIET_SHARE, AGAIN_S = 0.05, 0.95, 2.0


def spin(seconds: float) -> float:
    """CPU over wall time of a processor that spins."""
    begin, used = time.perf_counter(), time.thread_time()
    while time.perf_counter() - begin < seconds:
        pass
    return (time.thread_time() - used) / (time.perf_counter() - begin)


def quiet(pool: ProcessPoolExecutor, cores: int, patience: float) -> bool:
    """Wait until all cores are free, at most `patience` seconds; whether they are."""
    end = time.monotonic() + patience
    while True:
        if min(pool.map(spin, [SPIN_S] * cores)) >= QUIET_SHARE:
            return True
        if time.monotonic() > end:
            return False
        time.sleep(AGAIN_S)


def start(words: list[str], ranks: int = 0) -> str:
    """The output of `python -m WORDS`, on so many ranks where they are given. Raises RuntimeError unless it ends with
    0."""
    command = [*([*mpirun(), "-n", str(ranks)] if ranks else []), sys.executable, "-m", *words]
    return output_of(command, cwd=None)


def mean_error(errors: list[float]) -> float:
    """Of errors exp(x) - 1 that of the mean of x; NaN without any."""
    return float(np.expm1(np.mean(np.log1p(errors)))) if errors else float("nan")
