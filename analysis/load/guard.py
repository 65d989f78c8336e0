"""Calls functions in another process, with limits of time and memory; functions that open untrusted files run there.

A single wrong byte can make the HDF5 library crash, hang or ask for endless memory. Seals catch damage before the
library reads a file (`miniapps.untrusted.sealed`). Two kinds of files have no valid seal to check: files of a killed
run, which were never sealed, and files made to do harm. If such a file ends the other process, this process names the
file and goes on. The other process has the same rights as this one: it keeps the command alive, it is no sandbox.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any
from weakref import WeakSet

from miniapps.system.python import snippet
from miniapps.trace import RankTrace, TraceError, reader
from miniapps.untrusted import contents
from miniapps.untrusted.text import printable

START_S = 120.0  # to start a process on a busy machine
CALL_S = 60.0  # limit of a call without files
S_PER_BYTE = 2e-6  # added per byte of the files that it reads: a tenth of the slowest speed seen
MEMORY = 2**28  # bytes of address space, the limit of a call without files
MEMORY_PER_BYTE = 4  # added per byte of its files, and of the arrays that they may hold (`contents.Room`)


class Ended(Exception):
    """The other process did not answer; the message says how it ended."""


class NotStarted(RuntimeError):
    """The other process cannot be started: a fault of the machine, not of a file."""


of_this_process: WeakSet[Guard] = WeakSet()


def _forked() -> None:
    for guard in list(of_this_process):
        guard._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Guard:
    """One other process, which runs one call at a time.

    The first call starts it, and so does the next call after one that ended it. A fork of this process starts its own:
    over a shared pipe each would get answers to calls of the other."""

    def __init__(self):
        self._forget()
        of_this_process.add(self)

    def _forget(self) -> None:
        """Resets this Guard without ending the other process, which belongs to the parent of a fork."""
        self._process: Any = None
        self._pipe: Any = None
        self._lock = Lock()

    def call(self, function: Callable, *arguments: Any, nbytes: int = 0) -> Any:
        """Returns `function(*arguments)` from the other process; function, arguments and result must be picklable.

        `nbytes`: the size of the files that it reads. Raises the exceptions of `function`, and Ended if the process
        crashes, takes too long or too much memory.
        """
        with self._lock:
            if self._process is None:
                self._start()
            seconds = CALL_S + S_PER_BYTE * nbytes
            answer: Any  # the result or the exception of the function
            try:
                self._pipe.send((function, arguments, memory_for(nbytes), _here()))
                answered = self._pipe.poll(seconds)
                good, answer = self._pipe.recv() if answered else (False, None)
            except (EOFError, OSError):
                raise Ended(self._end()) from None
            except BaseException:  # an interrupt: the next call would receive the answer to this one
                self._end()
                raise
            if not answered:
                self._end()
                raise Ended(f"it took more than {seconds:.0f} s")
        if good:
            return answer
        if isinstance(answer, MemoryError):
            raise Ended(f"it asked for more than {memory_for(nbytes) / 2**20:,.0f} MiB of memory")
        raise answer

    def close(self) -> None:
        """Ends the process."""
        with self._lock:
            if self._process is not None:
                self._end()

    def _start(self) -> None:
        # Neither a fork, which HDF5 and threads do not survive, nor a process of multiprocessing, which would run the
        # caller's script a second time.
        self._pipe, theirs = multiprocessing.Pipe()
        start = (
            f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve({theirs.fileno()})"
        )
        # In its own process group, so that Ctrl-C reaches only the caller, which then closes the pipe.
        self._process = subprocess.Popen(
            snippet(start), stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], process_group=0
        )
        theirs.close()
        try:
            if self._pipe.poll(START_S):
                self._pipe.recv()
                return
        except (EOFError, OSError):
            pass
        raise NotStarted(f"the process that reads files cannot be started: {self._end()}")

    def _end(self) -> str:
        """Ends the process, by force if it still runs; returns a clause on how it ended."""
        process, self._process = self._process, None
        self._pipe.close()
        try:
            code = process.wait(1.0)  # one that crashed is still being taken down
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return "it did not answer"
        return f"it was ended by {_signal(-code)}" if code < 0 else f"it ended with exit code {code}"


shared = Guard()
atexit.register(shared.close)


def call(function: Callable, *arguments: Any, nbytes: int = 0) -> Any:
    """`Guard.call` of the shared Guard, for all calls outside a pool."""
    return shared.call(function, *arguments, nbytes=nbytes)


def guarded(function: Callable, path: Path, *arguments: Any) -> Any:
    """Returns `function(path, *arguments)` from the shared Guard; raises TraceError if `path` ends its process."""
    try:
        return call(function, path, *arguments, nbytes=sizes([path]))
    except Ended as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: Ended) -> TraceError:
    """The message about a file that ended the process reading it."""
    return TraceError(
        f"{printable(str(path))}: damaged, or made to do harm: {error} while it was read; copy it again from where the "
        "run wrote it, or leave this run out"
    )


def memory_for(nbytes: int) -> int:
    """The bytes of memory that a call may take for files of `nbytes`."""
    return MEMORY + MEMORY_PER_BYTE * (nbytes + contents.FREE + contents.FACTOR * nbytes)


def sizes(paths: Iterable[Path]) -> int:
    """The bytes of `paths` on disk, without paths that cannot be read."""
    total = 0
    for path in paths:
        with contextlib.suppress(OSError):
            total += os.lstat(path).st_blocks * 512
    return total


def read_run(
    run: str | os.PathLike, tables: Iterable[str] | None = None, ranks: Iterable[int] | None = None
) -> Iterator[RankTrace]:
    """`miniapps.trace.read_run`, but every file is read in the other process."""
    return reader.read_run(run, tables, ranks, call=guarded)


class Guards:
    """Several guards, for calls from several threads."""

    def __init__(self, count: int):
        self._all = [Guard() for _ in range(count)]
        self._idle: SimpleQueue[Guard] = SimpleQueue()
        for guard in self._all:
            self._idle.put(guard)

    def call(self, function: Callable, *arguments: Any, nbytes: int = 0) -> Any:
        """`Guard.call` of an idle guard; waits for one."""
        guard = self._idle.get()
        try:
            return guard.call(function, *arguments, nbytes=nbytes)
        finally:
            self._idle.put(guard)

    def close(self) -> None:
        """Ends all processes."""
        for guard in self._all:
            guard.close()


def serve(handle: int) -> None:
    """The main loop of the other process: answers the calls from the pipe `handle` until it is closed."""
    import h5py  # noqa: F401 (imported here, so that its own memory does not count as the memory of a file)

    pipe = Connection(handle)
    pipe.send(None)
    while True:
        try:
            function, arguments, memory, here = pipe.recv()
        except (EOFError, OSError):
            return
        with contextlib.suppress(OSError):
            os.chdir(here)  # the caller may have changed directory, and paths may be relative
        with _limited(memory):
            try:
                answer = (True, function(*arguments))
            except Exception as error:
                answer = (False, error.with_traceback(None))
        try:
            pipe.send(answer)
        except (OSError, MemoryError):
            return


def _here() -> str:
    """The current directory; "/" if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return "/"


@contextlib.contextmanager
def _limited(memory: int) -> Iterator[None]:
    """Limits this process to `memory` more bytes of address space inside the block; switches core dumps off."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    before = resource.getrlimit(resource.RLIMIT_AS)
    try:
        with open("/proc/self/statm") as file:
            most = int(file.read().split()[0]) * resource.getpagesize() + memory
    except OSError:  # not Linux: the memory in use is unknown
        yield
        return
    if before[1] != resource.RLIM_INFINITY:
        most = min(most, before[1])
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
