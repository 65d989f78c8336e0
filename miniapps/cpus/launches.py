"""Launches of a program in directories of their own, with settings or under an emulator."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from miniapps.cpus import asking
from miniapps.cpus.asking import Answers
from miniapps.cpus.outcomes import Outcome
from miniapps.errors import UsageError
from miniapps.launching import cpu_of_children, end_of, ended
from miniapps.system.layers import beside
from miniapps.untrusted.text import printable

OWN = "{out}"  # in a command: the directory in which a launch writes the files to compare
COPY, EMPTY, HERE = "copy", "empty", "here"
DIRECTORIES = {
    COPY: "a copy of the current directory", EMPTY: "an empty directory", HERE: "the current directory"
}  # fmt: skip
MOST_BYTES, MOST_FILES = 2**30, 20_000  # of a copied directory
QEMU = "qemu-x86_64"


@dataclass(frozen=True)
class Plan:
    """How to launch a program: its `command`, the kind of `directory` it runs in, its standard `input`, the time limit
    in seconds, the `library` that asks, and whether all launches are to `stay` on disk."""

    command: tuple[str, ...]
    directory: str
    input: Path | None
    timeout: float
    library: Path
    stay: bool = False

    @property
    def records_itself(self) -> bool:
        """Whether the command names the directory of the files to compare."""
        return any(OWN in word for word in self.command)


@dataclass(frozen=True)
class Emulator:
    """A processor that qemu emulates, and the `place` of the program among the words of the command."""

    model: str
    place: int

    def around(self, words: list[str]) -> list[str]:
        """The command with its program under the emulator."""
        program = shutil.which(words[self.place]) or words[self.place]
        return [*words[: self.place], QEMU, "-cpu", self.model, program, *words[self.place + 1 :]]


@dataclass
class Launch:
    """A launch that ended: what it printed and wrote, what its libraries answered, and the end of its messages."""

    outcome: Outcome
    answers: Answers
    errors: str


def require_program(command: tuple[str, ...]) -> str:
    """The path of the first word's program. Raises UsageError if it cannot be run, or if the loader would ignore
    settings for it."""
    name = printable(command[0])
    path = shutil.which(command[0])
    if path is None:
        here = (
            f"; the one in this directory is ./{name}"
            if "/" not in command[0] and Path(command[0]).exists()
            else ""
        )
        raise UsageError(f"no program {name!r} on PATH{here}")
    mode = os.stat(path).st_mode
    if mode & (stat.S_ISUID | stat.S_ISGID):
        raise UsageError(
            f"{name} is set-uid or set-gid, so the loader ignores settings of libraries; run a copy without this bit"
        )
    return path


def launch(plan: Plan, folder: Path, held: Mapping[str, str], emulator: Emulator | None = None) -> Launch:
    """Launch the program once in the new directory `folder` with the variables `held`.

    Raises UsageError if it cannot be started or does not end."""
    work, own, asked = folder / "work", folder / "out", folder / "asked"
    for each in (own, asked):
        each.mkdir(parents=True)
    where = _prepared(plan, work)
    words = [word.replace(OWN, str(own / "run")) for word in plan.command]
    shown = shlex.join([f"{name}={value}" for name, value in held.items()] + words)
    base = beside(os.environ, held)
    env = base | asking.settings(plan.library, asked, base)
    before = None if plan.records_itself or plan.directory == HERE else _snapshot(where)
    name = (
        f"the launch with {shlex.join(f'{key}={value}' for key, value in held.items())}"
        if held
        else "the program"
    )
    if emulator:
        words, name = emulator.around(words), f"the launch on an emulated {emulator.model}"
    with (
        open(folder / "printed", "wb") as out, open(folder / "errors", "w+b") as errors,
        open(plan.input or os.devnull, "rb") as given,
    ):  # fmt: skip
        cpu, begin = cpu_of_children(), time.perf_counter()
        code = ended(
            name, words, shown, plan.timeout, stdin=given, stdout=out, stderr=errors, cwd=where, env=env
        )
        wall, cpu = time.perf_counter() - begin, cpu_of_children() - cpu
        said = end_of(errors)
    if plan.records_itself:
        where, written = own, _files(own)
        (folder / "printed").write_bytes(b"")  # only the content of {out} is compared
    else:
        written = [] if before is None else _changed(where, before)
    outcome = Outcome(code, wall, cpu, folder / "printed", where, written)
    return Launch(outcome, asking.answers(asked), said)


def require_copyable(directory: Path) -> None:
    """Raises UsageError if the current directory is too large to be copied for each launch."""
    size = count = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            count += 1
            state = os.lstat(os.path.join(folder, name))
            size += state.st_size if stat.S_ISREG(state.st_mode) else 0
            if size > MOST_BYTES or count > MOST_FILES:
                raise UsageError(
                    f"{directory} holds more than {MOST_FILES:,} files or {MOST_BYTES / 2**30:g} GiB, and each launch "
                    "gets a copy of it; go to a smaller directory, or choose --directory empty (give paths from /) or "
                    "--directory here (only the output is compared)"
                )


def _prepared(plan: Plan, work: Path) -> Path:
    if plan.directory == HERE:
        return Path.cwd()
    if plan.directory == COPY:
        shutil.copytree(Path.cwd(), work, symlinks=True, ignore=_special)
    else:
        work.mkdir()
    return work


def _special(folder: str, names: list[str]) -> list[str]:
    """The names that are no files, directories or links, such as fifos, which cannot be copied."""
    modes = {name: os.lstat(os.path.join(folder, name)).st_mode for name in names}
    return [
        name
        for name, mode in modes.items()
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))
    ]


def _files(folder: Path) -> list[str]:
    return sorted(
        os.path.relpath(os.path.join(inside, name), folder)
        for inside, _, names in os.walk(folder)
        for name in names
    )


def _snapshot(folder: Path) -> dict[str, tuple[int, int, int]]:
    states = {}
    for name in _files(folder):
        state = os.lstat(folder / name)
        states[name] = (state.st_mtime_ns, state.st_size, state.st_ino)
    return states


def _changed(folder: Path, before: dict[str, tuple[int, int, int]]) -> list[str]:
    """The files that are new or were written since `before`, but for Python's caches."""
    after = _snapshot(folder)
    return [name for name, state in after.items() if before.get(name) != state and "__pycache__/" not in name]
