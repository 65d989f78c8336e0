"""Times sums under guarantee `layout` and the MPI library's in turn, on the launched ranks.

`benchmarks.allreduce.layout` runs it with the measured checkout on PYTHONPATH. Prints JSON: for each length the bytes
that a rank sends, and the times of both calls in every round.
"""

import argparse
import json
import time

import numpy as np
from mpi4py import MPI

from kernels.allreduce import plan
from kernels.allreduce.emulation import traffic
from miniapps.runner.policy import resolve

COMM = MPI.COMM_WORLD
ROUNDS, SAMPLE_S, MOST_S = 30, 0.002, 0.6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lengths", type=int, nargs="+", required=True)
    parser.add_argument("--contributions", type=int, default=1)
    parser.add_argument("--dtype", required=True)
    asked = parser.parse_args()
    rows = [measured(n, asked.contributions, asked.dtype) for n in asked.lengths]
    if COMM.rank == 0:
        print(json.dumps(rows))


def measured(n: int, contributions: int, dtype: str) -> dict:
    """The row for vectors of n elements, with so many contributions of every rank."""
    rng = np.random.default_rng(COMM.rank)
    x = rng.standard_normal((contributions, n)).astype(dtype)
    ours, out, added = np.empty(n, dtype), np.empty(n, dtype), np.empty(n, dtype)
    ordering, accumulation = resolve("layout", None, None).of(n)
    with plan(COMM, ordering, (n,), dtype, accumulation=accumulation) as reducer:

        def library() -> None:
            if contributions == 1:
                COMM.Allreduce(x, out)
            else:
                np.add.reduce(x, axis=0, out=added)
                COMM.Allreduce(added, out)

        calls = {"layout": lambda: reducer(x, ours), "library": library}
        repeats = COMM.bcast(max(1, int(SAMPLE_S / max(timed(calls["library"], 3), 1e-7))))
        repeats = min(repeats, 2000)
        times: dict[str, list[float]] = {name: [] for name in calls}
        begin = time.perf_counter()
        for k in range(ROUNDS + 1):
            if k > 3 and COMM.bcast(time.perf_counter() - begin > MOST_S):
                break
            for name in list(calls)[:: 1 if k % 2 else -1]:
                COMM.Barrier()
                took = timed(calls[name], repeats)
                if k:
                    times[name].append(COMM.allreduce(took, op=MPI.MAX))
        nbytes = sent(reducer, contributions)
    return {"elements": n, "bytes": nbytes, **times}


def sent(reducer, contributions: int) -> int:
    """The most bytes that a rank sends in a call; for records in one all-gather, its records to all other ranks."""
    if not hasattr(reducer, "_direct"):
        return (COMM.size - 1) * reducer.nbytes
    schedule = reducer.reduction.schedule(COMM.size)
    pairs, _ = traffic(reducer.reduction, schedule, [contributions] * COMM.size)
    return max(sum(b for (rank, _), b in pairs.items() if rank == one) for one in range(COMM.size))


def timed(call, repeats: int) -> float:
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - begin) / repeats
