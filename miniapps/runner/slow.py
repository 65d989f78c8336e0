"""A rank that is slowed, as by a slower processor: its process is stopped for a share of the time.

A child stops and continues it every few milliseconds (SIGSTOP, SIGCONT), so that whatever it does, in Python, in a
library or in MPI, takes that much longer by the clock. Its CPU time does not change.
"""

from __future__ import annotations

import os
import subprocess
import sys

ON = 0.004  # seconds between two stops

# Ends with its parent, which it never leaves stopped. A stopped parent cannot end by itself, but it can be killed.
_CHILD = """
import os, signal, sys, time
pid, on, off = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
try:
    while os.getppid() == pid:
        time.sleep(on)
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(off)
        finally:
            os.kill(pid, signal.SIGCONT)
except ProcessLookupError:
    pass
"""


class Slow:
    """This process, slowed by `factor` until `close`."""

    def __init__(self, factor: float):
        command = [sys.executable, "-S", "-c", _CHILD, str(os.getpid()), str(ON), str(ON * (factor - 1.0))]
        self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def close(self) -> None:
        """At full speed again."""
        self._child.terminate()
        self._child.wait()


def by(factor: float) -> Slow | None:
    """Slow this process; None for a factor of 1, which changes nothing."""
    return Slow(factor) if factor > 1 else None
