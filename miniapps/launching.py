"""Commands that launch programs of users, such as `fpna cause`: their common options, and one launch."""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from kernels.commands.options import add_json, add_loudness, add_version
from miniapps.errors import UsageError
from miniapps.trace import TraceError
from miniapps.untrusted.arguments import Parser
from miniapps.untrusted.regular import Refused
from miniapps.untrusted.text import printable, tell

BAD_USAGE = 2
TIMEOUT_S = 3600.0
END_S = 10.0  # time for a launch to end after SIGTERM
SHOWN = 2000  # bytes at the end of a failed launch's output


def parser(prog: str, usage: str, description: str, epilog: str, quiet: str) -> argparse.ArgumentParser:
    """A command line with the common options; `quiet`: the output that --quiet leaves. The first line of `epilog` is a
    heading, the second the example at the beginning of the help."""
    top = Parser(
        prog=prog, usage=usage, description=description, epilog=epilog, example=epilog.splitlines()[1].strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    top.add_argument(
        "--timeout", type=_seconds, default=TIMEOUT_S, metavar="SECONDS",
        help=f"limit for one launch ({TIMEOUT_S:g})",
    )  # fmt: skip
    add_json(top)
    add_loudness(top, quiet)
    add_version(top)
    return top


def _seconds(word: str) -> float:
    try:
        seconds = float(word)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"give seconds above 0, not {word}")
    return seconds


def around_dashes(argv: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Splits a command line (None: that of this process) at its first `--`."""
    words = list(sys.argv[1:] if argv is None else argv)
    end = words.index("--") if "--" in words else len(words)
    return words[:end], words[end + 1 :]


@contextlib.contextmanager
def kept(directory: Path | None, prefix: str) -> Iterator[Path]:
    """The directory of the launches: `directory`, else a temporary one. Raises UsageError unless it is new or empty."""
    if directory is None:
        with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as scratch:
            yield Path(scratch)
        return
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"--keep {printable(str(directory))}: not empty; choose a new directory")
    directory.mkdir(parents=True, exist_ok=True)
    yield directory


def code_of(prog: str, answer: Callable[[], int]) -> int:
    """Returns the exit code of `answer()`; prints an error of usage or of a run's files and returns 2."""
    try:
        return answer()
    except (UsageError, TraceError, Refused) as error:
        tell(f"{prog}: {error}", sys.stderr, keep="\n" if isinstance(error, UsageError) else "")
        return BAD_USAGE


def run_to_end(
    name: str, command: Sequence[str] | str, text: str, timeout: float, env: Mapping[str, str] | None = None
) -> None:
    """Run `command`, words or a line for the shell, until it ends.

    Messages call the launch `name` and its command `text`. Raises UsageError if the command cannot be started, does not
    end within `timeout` seconds, or fails; the message then holds the end of its output.
    """
    with tempfile.TemporaryFile() as output:
        code = ended(name, command, text, timeout, stdout=output, stderr=subprocess.STDOUT, env=env)
        if code:
            raise UsageError(f"{name} ended with {code}: {text}\n{end_of(output)}".rstrip())


def ended(name: str, command: Sequence[str] | str, text: str, timeout: float, **how: Any) -> int:
    """Run `command` as `run_to_end` does, with the arguments `how` of subprocess.Popen, and return its exit code; no
    process of its session is left after the time limit. Standard input is empty unless `how` says otherwise. Raises
    UsageError if the command cannot be started or does not end in time."""
    try:
        process: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[assignment]
            command, shell=isinstance(command, str), start_new_session=True,
            **{"stdin": subprocess.DEVNULL} | how,
        )  # fmt: skip
    except OSError as error:
        raise UsageError(
            f"{name} cannot be started: {command[0]}: {error.strerror}; name a program that is on PATH"
        ) from error
    try:
        return process.wait(timeout)
    except BaseException as error:
        _end(process)
        if isinstance(error, subprocess.TimeoutExpired):
            raise UsageError(
                f"{name} has not ended after {timeout:g} s: {text}; give it longer: --timeout SECONDS"
            ) from None
        raise


def cpu_of_children() -> float:
    """CPU seconds of all ended processes that this one started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def end_of(output: IO[bytes]) -> str:
    """The last SHOWN bytes of a launch's output, as it can be printed."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - SHOWN))
    return printable(output.read().decode(errors="replace"), keep="\n").strip()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started. A launcher ends its ranks at SIGTERM, but leaves them behind when it is
    killed."""
    _signal(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    _signal(process, signal.SIGKILL)  # also what the process left behind
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
