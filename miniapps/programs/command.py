"""Check the command of a program under `fpna run`, and find its name and arguments."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from miniapps.errors import UsageError
from miniapps.untrusted.text import printable

LAUNCHERS = re.compile(r"(mpirun|mpiexec|orterun|prterun|prun|srun|aprun|jsrun|ibrun)([._-]\w+)*$")
# Suffixes of sources, and their compilers.
COMPILERS = {
    ".c": "mpicc", ".cc": "mpicxx", ".cpp": "mpicxx", ".cxx": "mpicxx", ".f": "mpif90", ".f90": "mpif90",
    ".F90": "mpif90", ".f08": "mpif90",
}  # fmt: skip
INTERPRETER = re.compile(r"(python|perl|julia|Rscript|bash|sh)[\d.]*$")
INTERPRETERS = {".py": "python", ".jl": "julia", ".R": "Rscript", ".sh": "bash"}


LEFT_OUT = "*"  # replaces an argument that is no part of the problem
VALUED = ("-W", "-X", "--check-hash-based-pycs")  # options of Python whose value is the next word


def name_of(command: list[str]) -> str:
    """The name of a program: of its file, or of the script that an interpreter runs."""
    script = _script(command)
    return Path(command[0] if script is None else command[script]).name


def arguments_of(command: list[str], same_but: Sequence[str] = ()) -> str:
    """The arguments as part of a problem, without those in `same_but` and without the directory of a script."""
    words = [LEFT_OUT if word in same_but else word for word in command]
    script = _script(command)
    if script is not None:
        words[script] = Path(words[script]).name
    return shlex.join(words[1:])


def _script(command: list[str]) -> int | None:
    """The index of the script or module that an interpreter runs; None if `command` runs none."""
    if not INTERPRETER.match(Path(command[0]).name):
        return None
    before = ""
    for i, word in enumerate(command[1:], 1):
        if word == "-c":
            return None
        if not word.startswith("-") and before not in VALUED:
            return i
        before = word
    return None


def require_runnable(command: list[str], prog: str) -> None:
    """Raise UsageError if `command` cannot be executed, or is a launcher, which belongs before `fpna run`."""
    name, file = printable(command[0]), Path(command[0])
    if LAUNCHERS.match(file.name):
        raise UsageError(
            f"{name} belongs before {prog}, which must run in each process: {_inside_out(command, prog)}"
        )
    if shutil.which(command[0]):
        return
    if file.is_dir():
        raise UsageError(f"{name} is a directory; give the program in it")
    if file.is_file() and os.access(file, os.X_OK):
        raise UsageError(f"no program {name!r} on PATH; the one in this directory is ./{name}")
    if file.is_file():
        raise UsageError(f"{name} cannot be executed: {_advice(command[0], prog)}")
    folder, slash, _ = command[0].rpartition("/")
    near = [other.name for other in _beside(file) if os.access(other, os.X_OK) and other.is_file()]
    close = difflib.get_close_matches(file.name, near, 1)
    hint = f"; did you mean {folder if slash else '.'}/{close[0]}?" if close else ""
    raise UsageError(f"no program {name!r}{hint or ('' if slash else ' on PATH')}")


def _advice(file: str, prog: str) -> str:
    stem, suffix = os.path.splitext(file)
    if compiler := COMPILERS.get(suffix):
        return f"it is source code; compile it, {compiler} -g -o {stem} {file}, and run the program"
    if interpreter := INTERPRETERS.get(suffix):
        return f"start it by its interpreter: {prog} -- {interpreter} {file}"
    return f"its mode does not allow it; if it is a program: chmod +x {file}"


def _beside(file: Path) -> list[Path]:
    try:
        return list(file.parent.iterdir())
    except OSError:
        return []


def _inside_out(command: list[str], prog: str) -> str:
    """The same command with the launcher before `prog`."""
    for i, word in enumerate(command[1:], 1):
        if not word.startswith("-") and not word.isdecimal() and shutil.which(word):
            return shlex.join([*command[:i], *prog.split(), "--", *command[i:]])
    return f"{command[0]} -n 2 {prog} -- ./app"
