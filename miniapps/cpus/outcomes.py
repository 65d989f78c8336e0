"""What a launch printed and wrote, and the first place where two launches differ.

Text is compared word by word. Arrays of .npy, .npz and HDF5 files are compared bit by bit, runs of this suite by
`fpna divergence`, and other files byte by byte. Lines of output that come in another order, as ranks print them, are
no difference.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kernels.bits import differ, ulp_distance
from miniapps.errors import UsageError
from miniapps.system.python import module
from miniapps.trace import read_run
from miniapps.trace.records import CHAIN, NO_NUMBERS
from miniapps.trace.schema import rank_file
from miniapps.untrusted import Refused
from miniapps.untrusted.regular import kind_of, open_regular, read_bytes
from miniapps.untrusted.text import printable

MOST = 2**30  # bytes of a compared file
NOWHERE = (-1, -1)
SAME = "no difference seen"  # a verdict of `fpna divergence`
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?")
# Words beside numbers that come from a clock or a process, and differ from launch to launch.
CLOCK = re.compile(
    r"time|took|elapsed|second|\bsecs?\b|\b[mun]?s\b|wall|cpu|clock|date|flop|[kmg]i?b/s|/s\b|per sec|speed|rate\b|"
    r"\bpid\b|memory|rss|\d\d:\d\d",
    re.IGNORECASE,
)
EXACT_DIGITS, SINGLE_DIGITS = 16, 8  # digits from which a printed float64, float32 tells its last bits


@dataclass(frozen=True)
class Difference:
    """The first place where two launches differ: `where`, the numbers or words `a` and `b` there, their distance
    `units` in units in the last place and `relative`, where known. `clock`: the line also has a word of time; `coarse`:
    the numbers have few digits, so that those of a time may repeat by chance."""

    where: str
    a: str
    b: str
    units: float | None = None
    relative: float | None = None
    clock: bool = False
    coarse: bool = True

    @property
    def doubtful(self) -> bool:
        """Whether the numbers may be times, although they repeat from launch to launch."""
        return self.clock and self.coarse

    def __str__(self) -> str:
        size = "" if self.relative is None else f" ({self.relative:.2g} of it)"
        if self.units is not None:
            size = f" ({self.units:,.0f} unit{'s' * (self.units != 1)} in the last place)"
        return f"{self.where}: {self.a} and {self.b}{size}" if self.a or self.b else self.where


@dataclass
class Outcome:
    """A launch: exit `code`, seconds by the clock and of processor time, the files `printed` (standard output) and
    `folder` (what it wrote), and the `written` names relative to it."""

    code: int
    wall: float
    cpu: float
    printed: Path
    folder: Path
    written: list[str] = field(default_factory=list)


# The places of words that differ from launch to launch beside a word of time: (line, word) from 0, by text or file.
# Word -1 stands for the whole line.
Clocks = dict[str, set[tuple[int, int]]]


@dataclass
class Unrepeated:
    """What differs between ordinary launches: the places of times, which are left out, and `others`, for which the
    program does not repeat."""

    clocks: Clocks = field(default_factory=dict)
    others: list[Difference] = field(default_factory=list)


def unrepeated(one: Outcome, other: Outcome, leave_out: Sequence[str]) -> Unrepeated:
    """The differences of two launches with the same settings."""
    found = Unrepeated()
    for difference, name, place in _differences(one, other, leave_out, {}):
        if difference.clock:
            found.clocks.setdefault(name, set()).add(place)
        else:
            found.others.append(difference)
    return found


def first_difference(
    one: Outcome, other: Outcome, leave_out: Sequence[str], clocks: Clocks
) -> Difference | None:
    """The first difference of two launches outside the places `clocks`; doubtful ones come last. None: they are
    equal."""
    doubtful = None
    for difference, _, _ in _differences(one, other, leave_out, clocks):
        if not difference.doubtful:
            return difference
        doubtful = doubtful or difference
    return doubtful


def _differences(
    one: Outcome, other: Outcome, leave_out: Sequence[str], clocks: Clocks
) -> Iterator[tuple[Difference, str, tuple[int, int]]]:
    """The differences as (difference, name of the text or file, (line, word)). Standard output comes first."""
    if one.code != other.code:
        yield Difference("exit code", str(one.code), str(other.code)), "", NOWHERE
    a, b = (_lines(read_bytes(each.printed, MOST)) or [] for each in (one, other))
    yield from _of_text("output", a, b, leave_out, clocks.get("output", set()))
    runs = [name for name in _runs(one) if name in _runs(other)]
    for name in runs:
        if difference := _of_runs(one.folder / name, other.folder / name, name):
            yield difference, name, NOWHERE
    names = [
        name for name in sorted({*one.written, *other.written})
        if not _inside(name, runs) and not any(text in name for text in leave_out)
    ]  # fmt: skip
    for name in names:
        if name not in one.written or name not in other.written:
            yield Difference(f"file {printable(name)} is written by one launch alone", "", ""), name, NOWHERE
            continue
        yield from _of_files(name, one.folder / name, other.folder / name, leave_out, clocks.get(name, set()))


def digest(one: Outcome, leave_out: Sequence[str], clocks: Clocks) -> str:
    """A hash of what a launch printed and wrote, without what is left out: of the lines of a text in alphabetical
    order, and of the fingerprints and values of runs of this suite."""
    found = hashlib.sha256()

    def add(name: str, text: list[str]) -> None:
        kept = [
            _without(line, {word for at, word in clocks.get(name, ()) if at == i}) for i, line in enumerate(text)
            if not any(part in line for part in leave_out)
        ]  # fmt: skip
        found.update("\n".join([name, *sorted(kept), ""]).encode(errors="backslashreplace"))

    add("output", _lines(read_bytes(one.printed, MOST)) or [])
    runs = _runs(one)
    for name in runs:
        for trace in read_run(one.folder / name, tables=["fingerprints", "values"]):
            texts = np.array([text.startswith((*NO_NUMBERS, CHAIN)) for text in trace.names] or [False])
            for table, fields in (("fingerprints", ("hi", "lo")), ("values", ("value",))):
                rows = trace.tables[table]
                for field_ in ("repeat", "step", "block", *fields):
                    found.update(np.ascontiguousarray(rows[field_][~texts[rows["name"]]]).tobytes())
    for name in one.written:
        if _inside(name, runs) or any(part in name for part in leave_out) or kind_of(one.folder / name):
            continue
        content = read_bytes(one.folder / name, MOST)
        arrays, text = _arrays(name, one.folder / name, content), _lines(content)
        if arrays is not None:
            for key, array in sorted(arrays.items()):
                found.update(f"{name} {key} {array.dtype} {array.shape}".encode() + array.tobytes())
        elif text is not None:
            add(name, text)
        else:
            found.update(name.encode(errors="backslashreplace") + content)
    return found.hexdigest()


def _runs(one: Outcome) -> list[str]:
    """The directories, relative to its folder, of runs of this suite that a launch wrote."""
    first = rank_file(0)
    return [os.path.dirname(name) for name in one.written if os.path.basename(name) == first]


def _inside(name: str, folders: Sequence[str]) -> bool:
    return any(not folder or name.startswith(f"{folder}/") for folder in folders)


def _lines(content: bytes) -> list[str] | None:
    """Lines of text; None for other content."""
    if b"\0" in content[:4096]:
        return None
    return content.decode("utf-8", errors="backslashreplace").splitlines()


def _without(line: str, words: set[int]) -> str:
    """A line without the words at some places."""
    if -1 in words:
        return ""
    return " ".join(word for i, word in enumerate(line.split()) if i not in words) if words else line


def _of_text(
    name: str, a: list[str], b: list[str], leave_out: Sequence[str], clocks: set[tuple[int, int]]
) -> Iterator[tuple[Difference, str, tuple[int, int]]]:
    """The differences of two texts, in which lines with a text of `leave_out` and the places `clocks` of `a` are not
    compared."""

    def kept(lines: list[str]) -> list[tuple[int, str]]:
        return [(i, line) for i, line in enumerate(lines) if not any(text in line for text in leave_out)]

    left, right = kept(a), kept(b)
    if sorted(line for _, line in left) == sorted(line for _, line in right):
        return
    for (i, line), (_, theirs) in zip(left, right, strict=False):
        if line != theirs:
            for word, difference in _of_line(f"{printable(name)}, line {i + 1}", line, theirs):
                if not {(i, word), (i, -1)} & clocks:
                    yield difference, name, (i, word)
    if len(left) != len(right):
        where = f"{printable(name)}: numbers of lines"
        yield Difference(where, str(len(left)), str(len(right))), name, NOWHERE


def _of_line(where: str, a: str, b: str) -> Iterator[tuple[int, Difference]]:
    """(word, difference) for each word in which two lines differ; word -1 if they have not as many words."""
    clock = any(CLOCK.search(line) for line in (a, b))
    words = a.split(), b.split()
    if len(words[0]) != len(words[1]) or words[0] == words[1]:
        yield -1, Difference(where, printable(a.strip())[:60], printable(b.strip())[:60], clock=clock)
        return
    for i, (one, other) in enumerate(zip(*words, strict=True)):
        if one == other:
            continue
        if NUMBER.sub("", one) == NUMBER.sub("", other):  # x=0.1, and x=0.2,
            pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=False)
            one, other = next((pair for pair in pairs if pair[0] != pair[1]), (one, other))
        units, relative = _size(one, other)
        coarse = max(map(_digits, (one, other))) < SINGLE_DIGITS
        yield i, Difference(where, printable(one), printable(other), units, relative, clock, coarse)


def _size(a: str, b: str) -> tuple[float | None, float | None]:
    """The distance of two printed numbers: in units in the last place if enough digits are printed, of float32 for
    numbers of this type, and relative to the first."""
    if not (NUMBER.fullmatch(a) and NUMBER.fullmatch(b)):
        return None, None
    x, y = (float(word.replace("d", "e").replace("D", "e")) for word in (a, b))
    digits = max(map(_digits, (a, b)))
    single = all(float(np.float32(each)) == each for each in (x, y))
    kind, enough = (np.float32, SINGLE_DIGITS) if single else (np.float64, EXACT_DIGITS)
    units = float(ulp_distance(np.array(x, kind), np.array(y, kind))) if digits >= enough else None
    return units, abs(x - y) / abs(x) if x and np.isfinite(x) and np.isfinite(y) else None


def _digits(word: str) -> int:
    """The significant digits of a printed number."""
    return len(re.sub(r"[eEdD].*|[^\d]", "", word).lstrip("0"))


def _of_files(
    name: str, a: Path, b: Path, leave_out: Sequence[str], clocks: set[tuple[int, int]]
) -> Iterator[tuple[Difference, str, tuple[int, int]]]:
    shown = f"file {printable(name)}"
    kinds = [kind_of(path) for path in (a, b)]
    if any(kinds):
        links = [
            os.readlink(path) if kind == "a symbolic link" else kind
            for path, kind in zip((a, b), kinds, strict=True)
        ]
        if links[0] != links[1]:
            yield Difference(shown, printable(links[0]), printable(links[1])), name, NOWHERE
        return
    contents = [read_bytes(path, MOST) for path in (a, b)]
    if contents[0] == contents[1]:
        return
    arrays = [_arrays(name, path, content) for path, content in zip((a, b), contents, strict=True)]
    if arrays[0] is not None and arrays[1] is not None:
        if difference := _of_arrays(shown, arrays[0], arrays[1]):
            yield difference, name, NOWHERE
        return
    texts = [_lines(content) for content in contents]
    if texts[0] is not None and texts[1] is not None:
        yield from _of_text(name, texts[0], texts[1], leave_out, clocks)
        return
    length = min(map(len, contents))
    at = np.frombuffer(contents[0][:length], np.uint8) != np.frombuffer(contents[1][:length], np.uint8)
    place = int(np.argmax(at)) if at.any() else length
    byte = [content[place : place + 1].hex() or "the end" for content in contents]
    yield Difference(f"{shown}, byte {place}", byte[0], byte[1]), name, NOWHERE


def _arrays(name: str, path: Path, content: bytes) -> dict[str, np.ndarray] | None:
    """The arrays of a file by name; None if it has no known format."""
    with contextlib.suppress(ValueError, OSError, KeyError, zipfile.BadZipFile, EOFError, Refused):
        if content.startswith(b"\x93NUMPY"):
            return {"": np.load(io.BytesIO(content), allow_pickle=False)}
        if content.startswith(b"PK") and name.endswith(".npz"):
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                return {key: file[key] for key in file.files}
        if content.startswith(b"\x89HDF\r\n"):
            return _of_hdf5(path)
    return None


def _of_hdf5(path: Path) -> dict[str, np.ndarray]:
    import h5py

    found: dict[str, np.ndarray] = {}

    def read(key: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            found[key] = np.asarray(item[()])
        for attribute, value in getattr(item, "attrs", {}).items():
            found[f"{key}@{attribute}"] = np.asarray(value)

    with open_regular(path, MOST) as opened, h5py.File(opened, "r") as file:
        file.visititems(read)
    return found


def _of_arrays(shown: str, a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> Difference | None:
    for key in sorted({*a, *b}):
        where = f"{shown}, {printable(key)}" if key else shown
        if key not in a or key not in b:
            return Difference(f"{where}: in one launch alone", "", "")
        x, y = a[key], b[key]
        if x.shape != y.shape or x.dtype != y.dtype:
            return Difference(where, f"{x.dtype} {x.shape}", f"{y.dtype} {y.shape}")
        if x.tobytes() == y.tobytes():
            continue
        if x.dtype.kind == "c":
            x, y = (np.ascontiguousarray(each).view(each.real.dtype) for each in (x, y))
        if x.dtype.kind != "f" or x.dtype.itemsize > 8:
            return Difference(where, "", "")
        at = tuple(int(i) for i in np.argwhere(differ(x, y))[0]) if x.ndim else ()
        index = f"[{', '.join(map(str, at))}]" if at else ""
        p, q = x[at], y[at]
        relative = (
            float(abs(np.float64(q) - np.float64(p)) / abs(np.float64(p))) if p and np.isfinite(p) else None
        )
        return Difference(
            f"{where}{index}", repr(p.item()), repr(q.item()), float(ulp_distance(p, q)), relative
        )
    return None


def _of_runs(a: Path, b: Path, name: str) -> Difference | None:
    """The first divergence of two runs of this suite, by the analysis. Raises UsageError if it cannot read them."""
    done = subprocess.run(
        module("analysis", "divergence", str(a), str(b), "--json"), capture_output=True, text=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        compared = json.loads(done.stdout)["tables"]["comparisons"]
        differing = next((row for row in compared if row["verdict"] == "differs"), None)
        unequal = [row["verdict"] for row in compared if row["verdict"] not in (SAME, "differs")]
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"the run {name} cannot be compared: {printable(done.stderr[-500:])}") from None
    if differing is None:
        if unequal or not compared:
            raise UsageError(
                f"the run {name} cannot be compared: {', '.join(unequal) or 'it has no records'}"
            )
        return None
    block = (
        f", block {differing['block']}" if differing["block"] is not None and differing["block"] >= 0 else ""
    )
    return Difference(f"{printable(str(differing['name']))}, step {differing['step']}{block}", "", "")
