"""Starting our own modules in another process, whatever the files in the current directory are called."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGES = Path(__file__).resolve().parents[2]  # the directory that our packages are in


def module(name: str, *arguments: str) -> list[str]:
    """The command that runs the module `name`, as `python -m NAME ARGUMENTS`. Python looks into the current directory
    first, where `analysis.py` may be anyone's, unless it is told not to; in a checkout that directory is ours."""
    isolated = [] if Path.cwd().resolve() == PACKAGES else ["-P"]
    return [sys.executable, *isolated, "-m", name, *arguments]
