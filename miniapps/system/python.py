"""Run modules of this suite in another process, safe from files with the same name in the current directory."""

from __future__ import annotations

import subprocess
import sys
import threading
from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TextIO

from miniapps.untrusted.text import encodable

PACKAGES = Path(__file__).resolve().parents[2]  # the directory of this suite's packages


def module(name: str, *arguments: str) -> list[str]:
    """The command that runs the module `name`, like `python -m NAME ARGUMENTS`.

    Python would search the current directory first, where a stranger's `analysis.py` may lie. `-P` prevents it, except
    in a checkout of this suite."""
    try:
        here = Path.cwd().resolve()
    except OSError:  # it was removed
        here = None
    isolated = [] if here == PACKAGES else ["-P"]
    return [sys.executable, *isolated, "-m", name, *arguments]


def snippet(text: str) -> list[str]:
    """The command that runs `text`, like `python -c TEXT`, without searching the current directory."""
    return [sys.executable, "-P", "-c", text]


def relay(command: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Run `command`, copy its output to the streams of this process at once, and return its exit code (128 + the number
    of the signal that ended it).

    If the launcher wrote directly, a reader that closes the output would end it."""

    def copy(source: IO[bytes], to: TextIO) -> None:
        decode = getincrementaldecoder("utf-8")("backslashreplace").decode
        while piece := source.read1(2**16):  # type: ignore[attr-defined]
            to.write(encodable(decode(piece), to))
            to.flush()

    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        errors = threading.Thread(target=copy, args=(process.stderr, sys.stderr))
        errors.start()
        copy(process.stdout, sys.stdout)
        errors.join()
        code = process.wait()
    return code if code >= 0 else 128 - code
