"""Memory that a step frees stays with the process for the next step.

glibc gives freed memory back to the system: a large block at once, and the end of the heap when it is long (`man
mallopt`). A step that asks for it again meets a page fault for every 4 KiB, in which the system fills them with zeros;
that may take longer than the work on them. Whether it happens depends on what else lies at the end of the heap, so the
same step is fast in one process and slow in another. MPI programs often turn it off by MALLOC_TRIM_THRESHOLD_ and
MALLOC_MMAP_THRESHOLD_.
"""

from __future__ import annotations

import ctypes
import os

HEAP = "heap"  # entry of the environment
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of malloc.h
NEVER = 2**31 - 1  # bytes at the end of the heap
LARGEST = 2**25  # bytes of a block, the most that glibc takes: it gives larger ones back at once


def keep_freed_memory() -> str:
    """Keep memory that this process frees, in blocks up to LARGEST. Returns "kept"; or, with nothing done, "as the
    environment says" with variables of the user's, or "as the C library decides" with another one than glibc."""
    if any(key.startswith("MALLOC_") for key in os.environ) or "malloc" in os.environ.get(
        "GLIBC_TUNABLES", ""
    ):
        return "as the environment says"
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    kept = mallopt is not None and mallopt(TRIM_THRESHOLD, NEVER) and mallopt(MMAP_THRESHOLD, LARGEST)
    return "kept" if kept else "as the C library decides"
