"""How fast a rank reads and writes memory while all ranks do: copies and triads of STREAM (McCalpin 1995).

Arrays are of two lengths. The longer ones of all ranks of a node are together larger than its last cache: of these the
bandwidth of memory is. The shorter ones fit into the caches of a core. All ranks begin together, since those of a node
share its memory, and what a rank gets is its part.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np

from kernels.allreduce.execution.placement import nodes_of
from miniapps.calibrate.cases import Case

SHORT = 2**15  # bytes of an array
LONG = (2**25, 2**28)  # at least, and at most
ARRAYS = 3
FACTOR = 3.0
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def memory_cases(ctx) -> list[Case]:
    """A copy and a triad of each length; `nbytes` is what they read and write, without what a cache fetches on top."""
    long = ctx.comm.bcast(longest(max(Counter(nodes_of(ctx.comm)).values())))
    return [case for nbytes in (SHORT, long) for case in _of_length(nbytes // 8)]


def longest(ranks: int) -> int:
    """Bytes of the longer arrays, of each of so many ranks on a node."""
    return int(np.clip(last_cache() // ranks, *LONG))


def last_cache() -> int:
    """Bytes of the largest cache that this core shares, as Linux states it; 0 where it does not."""
    sizes = [0]
    for path in CACHES.glob("index*/size"):
        if found := re.fullmatch(r"(\d+)K", path.read_text().strip()):
            sizes.append(1024 * int(found[1]))
    return max(sizes)


def _of_length(length: int) -> list[Case]:
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
