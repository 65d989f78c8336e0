"""Whether something else uses this process' core, and how fast its clock runs: fixed work, timed.

A processor of which a process has all the time may still run at half speed: its core has a second thread, on a cloud
that of somebody else. No CPU time shows it, but a fixed work quantum does (FWQ: Sottile and Minnich, "Analysis of
microbenchmarks for performance tuning of clusters", 2004).

The work is sums of arrays in the first-level cache, which a second thread of the core slows down. A loop of the
interpreter is no such work: from process to process it takes up to a fifth longer on a core that nothing else uses.

A quantum does not say how fast the clock runs: it differs from process to process on a steady clock, too. A chain of
multiplications does. Each needs the product before it, so the chain takes a fixed number of cycles, and no memory.
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable

import numpy as np

SUMS, LENGTH = 100, 2048  # work of a quantum, about 0.05 ms: float32 sums of arrays of this length
LINE = 64  # bytes of a line of the cache, which an operand should not straddle
CHAIN = 16384  # multiplications of a chain, about 0.02 ms
TRIES = 3  # of a quantum or a chain: after other work the first one finds its data in no cache
# A quantum beyond LONGER times a short one was disturbed; a share SHORT of a process' quanta is shorter than that one.
# The shortest of all is a rare moment of a fast clock: half of the others may take a quarter longer.
LONGER, SHORT = 1.25, 0.1


def _array() -> np.ndarray:
    space = np.zeros(4 * LENGTH + LINE, np.uint8)
    first = -space.ctypes.data % LINE
    return space[first : first + 4 * LENGTH].view(np.float32)


OPERANDS = [_array() for _ in range(3)]


FACTORS = np.broadcast_to(np.float64(1.0), CHAIN)


def quantum() -> int:
    """Nanoseconds of CPU time of a fixed work quantum, the shortest of TRIES."""
    a, b, c = OPERANDS

    def sums() -> None:
        for _ in range(SUMS):
            np.add(a, b, out=c)

    return _shortest(sums)


def chain() -> int:
    """Nanoseconds of CPU time of a fixed number of cycles, the shortest of TRIES."""
    return _shortest(lambda: np.multiply.reduce(FACTORS))


def _shortest(work: Callable[[], object]) -> int:
    found = []
    for _ in range(TRIES):
        begin = time.thread_time_ns()
        work()
        found.append(time.thread_time_ns() - begin)
    return min(found)


class Core:
    """The core of this process."""

    def __init__(self) -> None:
        self._taken: list[int] = []  # sorted

    def undisturbed(self) -> bool:
        """Whether a quantum takes about as long as a short one so far."""
        taken = quantum()
        insort(self._taken, taken)
        return taken <= LONGER * self._taken[int(SHORT * len(self._taken))]


undisturbed = Core().undisturbed
