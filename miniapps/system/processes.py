"""Other programs, run to their end within a limit of time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, NamedTuple

END_S = 5.0  # that a program is given to end after SIGTERM: a launcher then ends its ranks
READ_S = 2.0  # that its output is waited for: what it left behind may hold the pipe open


class Ended(NamedTuple):
    """A program that has ended: its exit code, None where it took too long, and what it printed."""

    code: int | None
    out: str
    err: str


def ended(
    command: Sequence[str], limit: float, env: Mapping[str, str], heard: Callable[[str], None] | None = None
) -> Ended:
    """Run `command` with the environment `env` for at most `limit` seconds; `heard` is given each line that it prints
    on standard output, as it comes. Neither it nor what it starts in its process group outlives this call. Raises
    OSError where it cannot be started."""
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
    """End a process that runs and its group."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
