"""Calls for another process, most of which end it; a separate module that a new process imports quickly."""

import os
import signal
import time

from analysis.load import guard, rankfile
from miniapps.trace import TraceError


def pid_of():
    return os.getpid()


def double(number):
    return 2 * number


def crash():
    os.kill(os.getpid(), signal.SIGSEGV)


def leave():
    os._exit(3)


def hang():
    time.sleep(600)


def swallow():
    return len(bytearray(guard.memory_for(0)))


def refuse():
    raise TraceError("x.h5: not a trace")


def crash_on_rank_1(paths):
    if any(path.name == "rank-00001.h5" for path in paths):
        crash()
    return rankfile.read_piece(paths)
