"""SIGTERM and SIGINT as exceptions, delayed while a library that must not be interrupted runs."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator


class Terminated(BaseException):
    """SIGTERM arrived, from a batch system at its time limit or from a person."""


# An exception during its import ends the process by std::terminate, without a message.
UNINTERRUPTED = "torch"
AGAIN_S = 0.1  # delay after which a signal during this import is sent again

# Global, as signals are: the depth of nested `held`, and the exception to raise at its end.
_holds = 0
_waiting: BaseException | None = None


@contextlib.contextmanager
def raising() -> Iterator[None]:
    """Inside, SIGTERM raises Terminated and SIGINT KeyboardInterrupt; at the end the previous handlers return.

    Python handles signals in the main thread only; in other threads this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Inside, signals raise no exception; one that arrived is raised at the end."""
    global _holds, _waiting
    _holds += 1
    try:
        yield
    finally:
        _holds -= 1
        if not _holds and _waiting is not None:
            error, _waiting = _waiting, None
            raise error


def ignore() -> None:
    """From now on SIGTERM and SIGINT do nothing."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


def _handle(number: int, frame) -> None:
    global _waiting
    if _loads(UNINTERRUPTED):
        again = threading.Timer(AGAIN_S, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()
        return
    error = Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
    if not _holds:
        raise error
    _waiting = error


def _loads(name: str) -> bool:
    """Whether the module `name` is being imported."""
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))
