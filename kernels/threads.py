"""The number of threads that a kernel may use, and the number of cores."""

from __future__ import annotations

import os

MOST = 1024  # OpenMP keeps its record of a team on the stack: a million threads end in a segmentation fault


def checked(threads: int) -> int:
    """Returns `threads` if it is 1 to MOST, or 0 for OpenMP's default; else raises ValueError."""
    if not 0 <= threads <= MOST:
        raise ValueError(f"threads {threads}: choose 1 to {MOST}, or 0 for OpenMP's default")
    return threads


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
