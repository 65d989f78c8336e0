"""How many threads a kernel may be asked for, and how many cores there are for them."""

from __future__ import annotations

import os

MOST = 1024  # OpenMP keeps its record of a team on the stack: a million threads end in a segmentation fault


def checked(threads: int) -> int:
    """A number of threads, 0 for OpenMP's default; ValueError for a negative one and for more than MOST."""
    if not 0 <= threads <= MOST:
        raise ValueError(f"threads {threads}: choose 1 to {MOST}, or 0 for OpenMP's default")
    return threads


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
