"""Time of a library's all-reduce beside the number of its results: whether the fast call repeats its bits."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from hashlib import blake2b

from kernels.allreduce.instruments.libraries import Library, Way, numbers

CALLS = 100
WARM = 5  # calls before those that count


@dataclass(frozen=True)
class Timed:
    """`calls` all-reduces of the same `length` numbers gave `distinct` results, on all ranks together. `seconds`: the
    slowest rank's time, as the median of the calls. Bandwidths as nccl-tests define them: bytes per second."""

    length: int
    nbytes: int
    calls: int
    distinct: int
    seconds: float
    algbw: float
    busbw: float


def timed(library: Library, n: int, dtype: str, call: str = "blocking", calls: int = CALLS) -> Timed:
    """Time `calls` all-reduces of the same n numbers, n above 0, and count their results. Collective; the same on all
    ranks. Copies of the contribution and of the result are not timed."""
    comm = library.comm
    contribution = numbers(0, comm.rank, n, dtype)
    opened = library.opens(n, dtype, Way(call))
    times: list[float] = []
    results: set[bytes] = set()
    try:
        for i in range(-WARM, calls):
            opened.fill(contribution)
            comm.allgather(None)  # ranks begin together
            begin = time.perf_counter()
            opened.run()
            end = time.perf_counter()
            if i >= 0:
                times.append(end - begin)
                results.add(blake2b(opened.result().tobytes(), digest_size=16).digest())
    finally:
        opened.free()
    ranks = comm.allgather((times, results))
    seconds = statistics.median(map(max, zip(*(own for own, _ in ranks), strict=True)))
    nbytes = contribution.nbytes
    algbw = nbytes / seconds
    distinct = len(set().union(*(found for _, found in ranks)))
    return Timed(n, nbytes, calls, distinct, seconds, algbw, algbw * 2 * (comm.size - 1) / comm.size)
