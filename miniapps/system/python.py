"""Starting our own modules in another process, whatever the files in the current directory are called."""

from __future__ import annotations

import subprocess
import sys
import threading
from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TextIO

from miniapps.untrusted.text import encodable

PACKAGES = Path(__file__).resolve().parents[2]  # the directory that our packages are in


def module(name: str, *arguments: str) -> list[str]:
    """The command that runs the module `name`, as `python -m NAME ARGUMENTS`. Python looks into the current directory
    first, where `analysis.py` may be anyone's, unless it is told not to; in a checkout that directory is ours."""
    try:
        here = Path.cwd().resolve()
    except OSError:  # it was removed
        here = None
    isolated = [] if here == PACKAGES else ["-P"]
    return [sys.executable, *isolated, "-m", name, *arguments]


def snippet(text: str) -> list[str]:
    """The command that runs `text`, as `python -c TEXT`, which would look into the current directory, too."""
    return [sys.executable, "-P", "-c", text]


def relay(command: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Run `command`, write what it prints to our own streams as it comes, and return its exit code, 128 + the number of
    the signal that ended it. A launcher would be ended by the reader of our output that leaves."""

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
