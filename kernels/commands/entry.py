"""Correct exit codes for commands, even if the terminal, pipe or file that they print to fails."""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TextIO

from kernels.missing import not_installed

FAILED, BAD_USAGE, INTERRUPTED = 1, 2, 130
GONE = (
    errno.EPIPE,
    errno.ECONNRESET,
    errno.ESHUTDOWN,
    errno.ENOTCONN,
)  # the reader of a pipe or socket has left

P = ParamSpec("P")


def command_line(main: Callable[P, int]) -> Callable[P, int]:
    """Decorates the `main` of a command line, which returns the exit code.

    If the reader of the output leaves, as `head` does, the command goes on: its further output is dropped and its exit
    code is the same. If output cannot be written for another reason, such as a full disk, standard error says so and
    exit code 0 becomes 1. Ctrl-C ends with one line and exit code 130, a missing package with one line and exit code 2.
    Inside another such `main`, or where sys.stdout was replaced, the streams stay as they are."""

    @wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        with _own_streams() as out:
            ended: SystemExit | None = None
            try:
                code = main(*args, **kwargs)
            except SystemExit as end:  # of argparse: --help, --version, a mistake
                code, ended = _code_of(end), end
            except ModuleNotFoundError as error:
                if (sentence := not_installed(error)) is None:
                    raise
                print(sentence, file=sys.stderr)
                code = BAD_USAGE
            except KeyboardInterrupt:
                print("interrupted", file=sys.stderr)
                code = INTERRUPTED
            if out is not None:
                sys.stdout.flush()
                if out.lost is not None:
                    print(f"standard output cannot be written: {out.lost.strerror}; the output of this command is "
                          "incomplete: free space, or write elsewhere, and repeat it", file=sys.stderr)  # fmt: skip
                    code, ended = code or FAILED, None
            if ended is not None:
                raise ended
            return code

    return run


class _Descriptor(io.FileIO):
    """A file descriptor that drops output once writing fails. `lost`: the error, unless the reader has left."""

    lost: OSError | None = None

    def write(self, data) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            while left:
                written = super().write(left)
                if written is None:  # a non-blocking descriptor is full
                    select.select([], [self.fileno()], [])
                else:
                    left = left[written:]
        except OSError as error:
            if error.errno not in GONE and not (error.errno == errno.EIO and self.isatty()):
                self.lost = error
            sink = os.open(os.devnull, os.O_WRONLY)  # child processes and libraries write to it, too
            os.dup2(sink, self.fileno())
            os.close(sink)
        return size


@contextmanager
def _own_streams() -> Iterator[_Descriptor | None]:
    """A context in which sys.stdout and sys.stderr survive the loss of their readers; yields the descriptor of stdout.

    Yields None, and changes nothing, if they are not the streams with which this process started. A closed standard
    stream becomes the null device."""
    before = sys.stdout, sys.stderr
    if any(stream is not None and stream is not own
           for stream, own in zip(before, (sys.__stdout__, sys.__stderr__), strict=True)):  # fmt: skip
        yield None
        return
    for number in range(3):  # the next file opened would take the place of a closed one
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    out = _Descriptor(1, "w", closefd=False)
    sys.stdout = _text(out, before[0])
    sys.stderr = _text(_Descriptor(2, "w", closefd=False), before[1])
    try:
        yield out
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


def _text(raw: _Descriptor, like: TextIO | None) -> io.TextIOWrapper:
    """A text stream over `raw`, with encoding and buffering as `like`."""
    if not isinstance(like, io.TextIOWrapper):
        return io.TextIOWrapper(io.BufferedWriter(raw), errors="backslashreplace")
    like.flush()
    unbuffered = like.write_through
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        like.encoding, like.errors, line_buffering=like.line_buffering, write_through=unbuffered,
    )  # fmt: skip


def _code_of(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)  # as the interpreter does
    return FAILED
