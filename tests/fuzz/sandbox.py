"""A separate directory for each case: runs to damage, and files beside them that must not change.

CASE/runs/...          what the case harms; `.analysis` may appear in a run, and nothing else may change there
CASE/outside/...       files that links may lead to: never read, written or removed
CASE/work              the working directory, which stays empty
CASE/out               what commands are asked to write
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import re
import shutil
import stat
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from miniapps.untrusted import contents
from miniapps.untrusted.text import HIDDEN

SECRET = "f5e1-outside-f5e1"  # in every file outside, so that it shows in whatever repeats one
CACHE = ".analysis"
SIGNS = (
    "Traceback (most recent call last)",
    "HDF5-DIAG",
    "Segmentation fault",
    "Exception ignored in",
    SECRET,
)
# Bytes that a case may take beside what the processes had, and times those of the files that it is about. Arrays that
# are packed count as unpacked: `contents.Room` bounds them.
MEMORY, PER_BYTE = 2**28, 4
PACKED = (".h5", ".npz")


class Violation(Exception):
    """The criterion is broken; the message says how."""


@dataclass(frozen=True)
class Said:
    """What a command answered: its exit code, and what it printed on both streams."""

    code: int
    out: str
    err: str


@dataclass
class Sandbox:
    """`place` is CASE, the same for all cases of a process; `taken`: bytes of memory that the case took;
    `inputs`: how many damaged inputs it drew."""

    place: Path
    taken: int = 0
    inputs: int = 1
    done: list[str] = field(default_factory=list)  # what was done to the files, and what was said

    @property
    def runs(self) -> Path:
        return self.place / "runs"

    @property
    def outside(self) -> Path:
        return self.place / "outside"

    @property
    def work(self) -> Path:
        return self.place / "work"

    @property
    def out(self) -> Path:
        return self.place / "out"

    def note(self, what: str) -> None:
        """Remember `what` was done, for who looks at the case."""
        self.done.append(what)

    @contextlib.contextmanager
    def watched(self, changing: Callable[[Path], bool] = lambda path: False) -> Iterator[None]:
        """Raises Violation where something changed inside that is not `changing`, where something outside was read or
        written, and where more memory was taken than may be."""
        places = (self.outside, self.runs, self.work)
        before = [_state(place) for place in places]
        _age(self.outside)
        read_before = _read_times(self.outside)
        forget_memory()
        memory = tree_memory()
        yield
        self.taken = max(self.taken, tree_memory() - memory)
        if self.taken > (most := allowed(self.runs)):
            raise Violation(f"{self.taken / 2**20:.0f} MiB of memory, and {most / 2**20:.0f} are allowed")
        if read := [
            path for path, when in _read_times(self.outside).items() if read_before.get(path) != when
        ]:
            raise Violation(f"read outside: {read[0].relative_to(self.place)}")
        for place, old in zip(places, before, strict=True):
            now = _state(place)
            for path in old.keys() | now.keys():
                if CACHE in path.relative_to(self.place).parts and place == self.runs:
                    continue
                if old.get(path) != now.get(path) and not changing(path):
                    what = "removed" if path not in now else "changed" if path in old else "created"
                    raise Violation(f"{what}: {path.relative_to(self.place)}")
        for path in self.out.rglob("*"):
            if path.is_file() and SECRET.encode() in path.read_bytes():
                raise Violation(f"text from outside in {path.relative_to(self.place)}")

    def say(self, command: Callable[[], int | None]) -> Said:
        """What `command` returns and prints, also through C libraries and other processes.

        Raises Violation for a traceback, text from outside, and characters that a terminal would obey.
        """
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        _emptied()
        try:
            code = command()
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            out, err = _captured()
        for sign in SIGNS:
            if sign in out + err:
                raise Violation(f"{sign}: {(err if sign in err else out).strip()[-2000:]}")
        if odd := {one for one in out + err if one != "\n" and unicodedata.category(one) in HIDDEN}:
            raise Violation(f"control characters {sorted(map(ascii, odd))} in what was printed")
        self.note(f"exit code {code}; {out[:300]!r}; {err[:600]!r}")
        return Said(code, out, err)


latest: Sandbox | None = None  # that of the case being played


def allowed(place: Path) -> int:
    """The bytes of memory that reading the files below `place` may take."""
    files = [path.lstat() for path in place.rglob("*") if path.suffix not in PACKED and not path.is_symlink()]
    packed = [path.lstat() for path in place.rglob("*") if path.suffix in PACKED and not path.is_symlink()]
    plain, unpacked = (
        sum(512 * each.st_blocks for each in of if stat.S_ISREG(each.st_mode)) for of in (files, packed)
    )
    return MEMORY + PER_BYTE * (
        plain + unpacked + (contents.FREE + contents.FACTOR * unpacked if packed else 0)
    )


def fresh(place: Path) -> Sandbox:
    """A new sandbox at `place`, which is emptied."""
    clear(place)
    box = Sandbox(place)
    for folder in (box.runs, box.outside / "kept", box.work, box.out):
        folder.mkdir(parents=True)
    (box.outside / "secret.txt").write_text(f"{SECRET}\n")
    (box.outside / "kept" / "secret.json").write_text(f'{{"status": "{SECRET}"}}\n')
    os.chdir(box.work)
    global latest
    latest = box
    return box


def clear(place: Path) -> None:
    """Remove `place`, whatever a case made of it."""
    if not place.exists():
        return
    for folder, _, _ in os.walk(place):
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
    shutil.rmtree(place)


def room() -> Path:
    """A new directory in memory, where the system has one."""
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="fuzz-", dir=parent))


def notices_reading(place: Path) -> bool:
    """Whether the file system below `place` keeps the times of reading."""
    path = place / "read-me"
    path.write_text(SECRET)
    _age(place)
    before = _read_times(place)
    path.read_text()
    noticed = _read_times(place) != before
    path.unlink()
    return noticed


def tree_memory() -> int:
    """The most memory in bytes, of this process and its children that are alive, since `forget_memory`."""
    return sum(_most(pid) for pid in _family())


def forget_memory() -> None:
    """Begin anew with the peaks that `tree_memory` sees."""
    for pid in _family():
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def _family() -> list[int]:
    own = os.getpid()
    with contextlib.suppress(OSError):
        words = [
            Path(f"/proc/{own}/task/{task}/children").read_text() for task in os.listdir(f"/proc/{own}/task")
        ]
        return [own, *map(int, " ".join(words).split())]
    return [own]


def _most(pid: int) -> int:
    try:
        match = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(match[1]) * 1024 if match else 0


def _state(place: Path) -> dict[Path, tuple]:
    """What is below `place`: kind, size, time of change, targets of links; no content, which would be a reading."""
    entries = {}
    for folder, names, files in os.walk(place):
        for name in (*names, *files):
            path = Path(folder, name)
            about = path.lstat()
            times = () if stat.S_ISDIR(about.st_mode) else (about.st_size, about.st_mtime_ns)
            entries[path] = (about.st_mode, *times, os.readlink(path) if stat.S_ISLNK(about.st_mode) else "")
    return entries


def _age(place: Path) -> None:
    """Make all times of reading older than those of change: systems note only the first reading after a change."""
    for folder, _, files in os.walk(place):
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            if not path.is_symlink():
                os.utime(path, ns=(1, path.stat().st_mtime_ns))


def _read_times(place: Path) -> dict[Path, int]:
    """When each file below `place` was read. Directories are left out: looking at them here would read them."""
    return {
        path: path.stat().st_atime_ns for path in place.rglob("*") if path.is_file() and not path.is_symlink()
    }


# The two streams of a worker lead into files, for all its life: processes that it starts inherit them.
_streams: list[int] = []


def capture_streams() -> int:
    """From now on both streams, of C libraries and of new processes too, go to files; a handle of the old stdout."""
    kept = os.dup(1)
    for number, stream in ((1, "stdout"), (2, "stderr")):
        handle = os.memfd_create(stream)
        fcntl.fcntl(handle, fcntl.F_SETFL, os.O_APPEND)
        os.dup2(handle, number)
        _streams.append(handle)
        errors = "strict" if number == 1 else "backslashreplace"
        raw = open(number, "wb", closefd=False)  # noqa: SIM115 - for all the life of the process
        setattr(sys, stream, io.TextIOWrapper(raw, encoding="utf-8", errors=errors))
    return kept


def _emptied() -> None:
    for handle in _streams:
        os.ftruncate(handle, 0)


def _captured() -> tuple[str, str]:
    return tuple(os.pread(handle, 2**26, 0).decode("utf-8", "replace") for handle in _streams)
