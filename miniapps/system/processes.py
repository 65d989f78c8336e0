"""Run other programs within a time limit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, NamedTuple

END_S = 5.0  # for a program to end after SIGTERM, so that a launcher can end its ranks
READ_S = 2.0  # for the rest of its output: processes that it left behind may hold the pipe open


class Ended(NamedTuple):
    """A program that has ended: its exit code, None after the time limit, and its output."""

    code: int | None
    out: str
    err: str


def ended(
    command: Sequence[str], limit: float, env: Mapping[str, str], heard: Callable[[str], None] | None = None
) -> Ended:
    """Run `command` with the environment `env` for at most `limit` seconds. Raises OSError if it cannot be started.

    `heard` gets each line of standard output at once. No process of its process group outlives this call."""
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    out: list[str] = []
    err: list[str] = []

    def read(stream: IO[str], lines: list[str], each: Callable[[str], None] | None) -> None:
        with contextlib.suppress(ValueError, OSError):
            for line in stream:
                lines.append(line)
                if each:
                    each(line)

    readers = [
        threading.Thread(target=read, args=arguments, daemon=True)
        for arguments in ((process.stdout, out, heard), (process.stderr, err, None))
    ]
    for reader in readers:
        reader.start()
    code: int | None = None
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        pass
    finally:
        _end(process)
        for reader in readers:
            reader.join(READ_S)
    return Ended(code, "".join(out), "".join(err))


def _end(process: subprocess.Popen[str]) -> None:
    """End the process and its process group."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
