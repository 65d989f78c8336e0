"""Slows a rank as a slower processor would: its computations take longer, its waits do not.

Whenever a region begins or ends, the thread spins for `factor` - 1 times the CPU time that it used since the last
beginning or end. So every region of work takes longer, in elapsed and in CPU time. Collectives, exchanges and waits are
not stretched: their CPU time goes into polling for messages.
"""

from __future__ import annotations

from time import thread_time

from miniapps.trace import Tracer
from miniapps.trace.schema import COLLECTIVE, EXCHANGE, WAIT

AWAY = (COLLECTIVE, EXCHANGE, WAIT)  # kinds of regions in which a rank waits for others


class Slow:
    """Slows the thread that records with `tracer`, once `by` is called. Construct it before any code keeps the tracer's
    `clock` and `event`, which it replaces."""

    def __init__(self, tracer: Tracer):
        self._tracer, self._clock, self._event = tracer, tracer.clock, tracer.event
        self._factor, self._last = 1.0, 0.0
        tracer.clock, tracer.event = self._begin, self._end

    def by(self, factor: float) -> None:
        """From now on make work take `factor` times as long; 1 stops the slowing."""
        self._factor, self._last = factor, thread_time()

    def _begin(self) -> int:
        self._stretch()
        return self._clock()

    def _end(self, name: int, start: int, nbytes: int = 0, flops: int = 0) -> None:
        if self._tracer.kind(name) in AWAY:
            self._last = thread_time()
        else:
            self._stretch()
        self._event(name, start, nbytes, flops)

    def _stretch(self) -> None:
        if self._factor > 1.0:
            now = thread_time()
            end = now + (self._factor - 1.0) * (now - self._last)
            while now < end:
                now = thread_time()
            self._last = now
