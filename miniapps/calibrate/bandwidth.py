"""How fast a rank reads and writes memory while all ranks do: copies and triads of STREAM (McCalpin 1995).

The arrays of all ranks of a node are together larger than its last cache. All ranks begin together, since those of a
node share its memory, and what a rank gets is its part.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np

from kernels.allreduce.execution.placement import nodes_of
from miniapps.calibrate.cases import Case

BYTES = (2**25, 2**28)  # of an array, at least and at most
ARRAYS = 3
FACTOR = 3.0
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def memory_cases(ctx) -> list[Case]:
    """A copy and a triad; `nbytes` is what they read and write, without what a cache fetches on top."""
    length = ctx.comm.bcast(array_bytes(max(Counter(nodes_of(ctx.comm)).values()))) // 8
    # Written once: pages that nobody has written are one page of zeros.
    a, b, c = (np.full(length, float(value)) for value in range(ARRAYS))
    parameters = {"length": float(length)}

    def triad() -> None:
        """a = b + FACTOR c in two passes: NumPy has no single one."""
        np.multiply(c, FACTOR, out=a)
        np.add(a, b, out=a)

    return [
        Case("memory.copy", lambda: np.copyto(a, b), parameters, nbytes=2 * a.nbytes, together=True),
        Case("memory.triad", triad, parameters, flops=2 * length, nbytes=5 * a.nbytes, together=True),
    ]


def array_bytes(ranks: int) -> int:
    """Bytes of an array, where a node has so many ranks."""
    return int(np.clip(last_cache() // ranks, *BYTES))


def last_cache() -> int:
    """Bytes of the largest cache that this core shares, as Linux states it; 0 where it does not."""
    sizes = [0]
    for path in CACHES.glob("index*/size"):
        if found := re.fullmatch(r"(\d+)K", path.read_text().strip()):
            sizes.append(1024 * int(found[1]))
    return max(sizes)
