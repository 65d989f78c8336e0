"""Whether something else uses this process' core: how long a fixed quantum of work takes.

A processor of which a process has all the time may still run at half speed: its core has a second thread, on a cloud
that of somebody else. No CPU time shows it, but a fixed work quantum does (FWQ: Sottile and Minnich, "Analysis of
microbenchmarks for performance tuning of clusters", 2004).
"""

from __future__ import annotations

import time

LOOPS = 1000  # work of a quantum; it takes about 0.05 ms
TRIES = 3  # of a quantum: after other work the first one finds its code in no cache
LONGER = 1.25  # a quantum beyond so many times the shortest was disturbed


def quantum() -> int:
    """Nanoseconds of CPU time of a fixed work quantum, the shortest of TRIES."""
    found = []
    for _ in range(TRIES):
        begin, total = time.thread_time_ns(), 0
        for number in range(LOOPS):
            total += number
        found.append(time.thread_time_ns() - begin)
    return min(found)


class Core:
    """The core of this process. `shortest`: nanoseconds of the shortest quantum so far."""

    def __init__(self) -> None:
        self.shortest = float("inf")

    def undisturbed(self) -> bool:
        """Whether a quantum takes about as long as the shortest one so far."""
        taken = quantum()
        self.shortest = min(self.shortest, taken)
        return taken <= LONGER * self.shortest


undisturbed = Core().undisturbed
