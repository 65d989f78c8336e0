"""The memory bandwidth of a rank while all ranks use memory: copies and triads of STREAM (McCalpin 1995).

The arrays of all ranks of a node are together larger than its last cache. All ranks begin together, since those of a
node share its memory bandwidth, and each measures its part.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np

from kernels.allreduce.execution.placement import nodes_of
from miniapps.calibrate.cases import Case

BYTES = (2**25, 2**28)  # the least and most bytes of an array
ARRAYS = 3
FACTOR = 3.0
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def memory_cases(ctx) -> list[Case]:
    """A copy and a triad; `nbytes` counts what they read and write, without the lines that a cache fetches before it
    writes."""
    length = ctx.comm.bcast(array_bytes(max(Counter(nodes_of(ctx.comm)).values()))) // 8
    # Written once, since pages that were never written all map to one page of zeros.
    a, b, c = (np.full(length, float(value)) for value in range(ARRAYS))
    parameters = {"length": float(length)}

    def triad() -> None:
        """a = b + FACTOR c in two passes, since NumPy has no function for it."""
        np.multiply(c, FACTOR, out=a)
        np.add(a, b, out=a)

    return [
        Case("memory.copy", lambda: np.copyto(a, b), parameters, nbytes=2 * a.nbytes, together=True),
        Case("memory.triad", triad, parameters, flops=2 * length, nbytes=5 * a.nbytes, together=True),
    ]


def array_bytes(ranks: int) -> int:
    """The bytes of an array if a node has `ranks` ranks."""
    return int(np.clip(last_cache() // ranks, *BYTES))


def last_cache() -> int:
    """Bytes of the largest cache of this core, as Linux reports it; 0 if Linux reports none."""
    sizes = [0]
    for path in CACHES.glob("index*/size"):
        if found := re.fullmatch(r"(\d+)K", path.read_text().strip()):
            sizes.append(1024 * int(found[1]))
    return max(sizes)
