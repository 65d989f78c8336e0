"""The lines of the user's code in the traceback of an error."""

from __future__ import annotations

import os
import sysconfig
import traceback
from pathlib import Path

LIBRARIES = ("site-packages", "dist-packages", sysconfig.get_path("stdlib"))
OURS = Path(__file__).resolve().parents[3]


def line_of(error: BaseException) -> str:
    """` (mine.py, line 3)`: the innermost line of the user's code that raised an error; empty without one."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({shown(error.filename)}, line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename)]
    return f" ({shown(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""


def raised_by_user(error: BaseException) -> bool:
    """Whether a line of the user's own raised the error, not a library that it calls."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and is_users(frames[-1].filename)


def is_users(path: str) -> bool:
    """Whether a source file belongs to neither an installed package, nor Python, nor this suite."""
    ours = any(Path(path).is_relative_to(OURS / package) for package in ("miniapps", "kernels", "fpna"))
    return not ours and path.endswith(".py") and not any(place in path for place in LIBRARIES)


def shown(path: str) -> str:
    """A path, relative to the current directory if it lies below it."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path
