"""Commands that launch programs of users, `fpna cause` and `fpna cost`: their common options, and one launch."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence

from kernels.commands.options import add_json, add_loudness, add_version
from miniapps.errors import UsageError
from miniapps.trace import TraceError
from miniapps.untrusted.arguments import Parser
from miniapps.untrusted.regular import Refused
from miniapps.untrusted.text import printable, tell

BAD_USAGE = 2
TIMEOUT_S = 3600.0
END_S = 10.0  # time for a launch to end after SIGTERM
SHOWN = 2000  # characters at the end of a failed launch's output


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
        try:
            process = subprocess.Popen(
                command, shell=isinstance(command, str), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, env=env,
            )  # fmt: skip
        except OSError as error:
            raise UsageError(
                f"{name} cannot be started: {command[0]}: {error.strerror}; name a program that is on PATH"
            ) from error
        try:
            code = process.wait(timeout)
        except BaseException as error:
            _end(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise UsageError(
                    f"{name} has not ended after {timeout:g} s: {text}; give it longer: --timeout SECONDS"
                ) from None
            raise
        if code:
            output.seek(0)
            printed = printable(output.read().decode(errors="replace")[-SHOWN:], keep="\n").strip()
            raise UsageError(f"{name} ended with {code}: {text}\n{printed}".rstrip())


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process. A launcher ends its ranks at SIGTERM, but leaves them behind when it is killed."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
