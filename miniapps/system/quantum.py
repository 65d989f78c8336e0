"""Whether something else uses this process' core: how long a fixed quantum of work takes.

A processor of which a process has all the time may still run at half speed: its core has a second thread, on a cloud
that of somebody else. No CPU time shows it, but a fixed work quantum does (FWQ: Sottile and Minnich, "Analysis of
microbenchmarks for performance tuning of clusters", 2004).

The work is sums of arrays in the first-level cache, which a second thread of the core slows down. A loop of the
interpreter is no such work: from process to process it takes up to a fifth longer on a core that nothing else uses.
"""

from __future__ import annotations

import time
from bisect import insort

import numpy as np

SUMS, LENGTH = 100, 2048  # work of a quantum, about 0.05 ms: float32 sums of arrays of this length
LINE = 64  # bytes of a line of the cache, which an operand should not straddle
TRIES = 3  # of a quantum: after other work the first one finds its data in no cache
# A quantum beyond LONGER times a short one was disturbed; a share SHORT of a process' quanta is shorter than that one.
# The shortest of all is a rare moment of a fast clock: half of the others may take a quarter longer.
LONGER, SHORT = 1.25, 0.1


def _array() -> np.ndarray:
    space = np.zeros(4 * LENGTH + LINE, np.uint8)
    first = -space.ctypes.data % LINE
    return space[first : first + 4 * LENGTH].view(np.float32)


OPERANDS = [_array() for _ in range(3)]


def quantum() -> int:
    """Nanoseconds of CPU time of a fixed work quantum, the shortest of TRIES."""
    found, (a, b, c) = [], OPERANDS
    for _ in range(TRIES):
        begin = time.thread_time_ns()
        for _ in range(SUMS):
            np.add(a, b, out=c)
        found.append(time.thread_time_ns() - begin)
    return min(found)


class Core:
    """The core of this process. `last`: nanoseconds of the last quantum."""

    def __init__(self) -> None:
        self.last = 0
        self._taken: list[int] = []  # sorted

    def undisturbed(self) -> bool:
        """Whether a quantum takes about as long as a short one so far."""
        self.last = quantum()
        insort(self._taken, self.last)
        return self.last <= LONGER * self._taken[int(SHORT * len(self._taken))]


own_core = Core()
undisturbed = own_core.undisturbed
