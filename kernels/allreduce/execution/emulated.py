"""A reducer over emulated links: it ends no earlier than its messages would have arrived over these.

The bits stay the same. Reductions use the links one after the other, in the order in which they are begun.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from kernels.allreduce.emulation import in_place_of, seconds, traffic
from kernels.allreduce.execution.planning import context_of
from kernels.allreduce.execution.reducer import Reducer
from kernels.allreduce.links import Links


class Clock:
    """The time at which the links of a rank are free again."""

    def __init__(self, links: Links):
        self.links = links
        self.free = 0.0


class EmulatedReducer:
    """Delays the totals of `inner` as slower links would: by `seconds` of its messages from its beginning, and after
    the reductions begun before. Otherwise as a Reducer. Collective."""

    def __init__(self, inner: Reducer, clock: Clock, comm: MPI.Intracomm, blocks: Sequence[int] | None):
        reduction = in_place_of(inner.reduction)
        schedule = reduction.schedule(comm.size, **context_of(comm, reduction, blocks))
        counts = comm.allgather(1 if blocks is None else len(blocks))
        self._seconds = seconds(clock.links, comm.size, *traffic(reduction, schedule, counts))
        self._inner, self._clock, self._ready = inner, clock, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __call__(self, contributions, out=None) -> np.ndarray:
        self._send()
        total = self._inner(contributions, out)
        self._wait()
        return total

    def start(self, contributions, out=None) -> None:
        """Begin a sum."""
        self._send()
        self._inner.start(contributions, out)

    def progress(self) -> bool:
        """Whether `finish()` would return at once."""
        return self._inner.progress() and time.monotonic() >= self._ready

    def add(self, block: int, contribution) -> None:
        """Hand over a contribution; messages go with `finish`."""
        self._inner.add(block, contribution)
        self._ready = 0.0

    def finish(self) -> np.ndarray:
        """The total of the started or added contributions."""
        if not self._ready:
            self._send()
        total = self._inner.finish()
        self._wait()
        return total

    def _send(self) -> None:
        self._ready = self._clock.free = max(time.monotonic(), self._clock.free) + self._seconds

    def _wait(self) -> None:
        left = self._ready - time.monotonic()
        if left > 0:
            time.sleep(left)
        self._ready = 0.0
