"""Calls in another process, with limits of time and memory: what opens files of unknown origin is called there.

The HDF5 library can crash, hang or ask for endless memory over a single byte. Seals catch damage before it sees it
(`miniapps.untrusted.sealed`); what is left are files that were never sealed, because their run was killed, and those
that someone made to do harm. When such a file ends the other process, this one names it and goes on. The other process
has the same rights as this one: it keeps the command alive, it is no sandbox.
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
CALL_S = 60.0  # that a call may take, and beside it
S_PER_BYTE = 2e-6  # for the files that it reads: a tenth of the slowest speed seen
MEMORY = 2**28  # bytes of address space that a call may take, and beside them
MEMORY_PER_BYTE = 4  # times the bytes of its files and of all arrays that these may hold (`contents.Room`)


class Ended(Exception):
    """The other process did not answer; the message says how it ended."""


class NotStarted(RuntimeError):
    """The other process does not run: the machine's trouble, no file's."""


of_this_process: WeakSet[Guard] = WeakSet()


def _forked() -> None:
    for guard in list(of_this_process):
        guard._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Guard:
    """One other process, started by the first call and again after one that ended it. One call at a time. A process
    that is forked starts one of its own: over one pipe each would get answers to calls of the other."""

    def __init__(self):
        self._forget()
        of_this_process.add(self)

    def _forget(self) -> None:
        """Start over, and leave the other process to whom it belongs."""
        self._process: Any = None
        self._pipe: Any = None
        self._lock = Lock()

    def call(self, function: Callable, *arguments: Any, nbytes: int = 0) -> Any:
        """`function(*arguments)`, what both are made of being picklable; `nbytes`: of the files that it reads.

        Raises what `function` raises, and Ended where the process crashes, takes too long or too much memory.
        """
        with self._lock:
            if self._process is None:
                self._start()
            seconds = CALL_S + S_PER_BYTE * nbytes
            answer: Any  # what the function returned, or raised
            try:
                self._pipe.send((function, arguments, memory_for(nbytes), _here()))
                answered = self._pipe.poll(seconds)
                good, answer = self._pipe.recv() if answered else (False, None)
            except (EOFError, OSError):
                raise Ended(self._end()) from None
            except BaseException:  # an interrupt in the middle: the next answer would be of this call
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
        """End the process."""
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
        # In a process group of its own, since Ctrl-C is the caller's, who then closes the pipe.
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
        """Kill the process; how it had ended."""
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
    """As `Guard.call`, in the one other process that this process has for all that is not pooled."""
    return shared.call(function, *arguments, nbytes=nbytes)


def guarded(function: Callable, path: Path, *arguments: Any) -> Any:
    """`function(path, *arguments)` by `call`; raises TraceError where that does not answer."""
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
    """The bytes of `paths` on disk, as far as they can be seen."""
    total = 0
    for path in paths:
        with contextlib.suppress(OSError):
            total += os.lstat(path).st_blocks * 512
    return total


def read_run(
    run: str | os.PathLike, tables: Iterable[str] | None = None, ranks: Iterable[int] | None = None
) -> Iterator[RankTrace]:
    """As `miniapps.trace.read_run`, which reads in this process."""
    return reader.read_run(run, tables, ranks, call=guarded)


class Guards:
    """Several guards, for calls from several threads."""

    def __init__(self, count: int):
        self._all = [Guard() for _ in range(count)]
        self._idle: SimpleQueue[Guard] = SimpleQueue()
        for guard in self._all:
            self._idle.put(guard)

    def call(self, function: Callable, *arguments: Any, nbytes: int = 0) -> Any:
        """As `Guard.call`, in one that is idle."""
        guard = self._idle.get()
        try:
            return guard.call(function, *arguments, nbytes=nbytes)
        finally:
            self._idle.put(guard)

    def close(self) -> None:
        """End all of them."""
        for guard in self._all:
            guard.close()


def serve(handle: int) -> None:
    """The other process: answer the calls that come through the pipe `handle` until it is closed."""
    import h5py  # noqa: F401 (what a library maps when it is loaded is not what a file takes)

    pipe = Connection(handle)
    pipe.send(None)
    while True:
        try:
            function, arguments, memory, here = pipe.recv()
        except (EOFError, OSError):
            return
        with contextlib.suppress(OSError):
            os.chdir(here)  # a notebook may have changed it, and paths may be relative
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
    """The current directory; "/" if somebody removed it."""
    try:
        return os.getcwd()
    except OSError:
        return "/"


@contextlib.contextmanager
def _limited(memory: int) -> Iterator[None]:
    """Inside, this process may take `memory` more bytes of address space; its files leave no core."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    before = resource.getrlimit(resource.RLIMIT_AS)
    try:
        with open("/proc/self/statm") as file:
            most = int(file.read().split()[0]) * resource.getpagesize() + memory
    except OSError:  # not Linux: what is in use cannot be told
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
