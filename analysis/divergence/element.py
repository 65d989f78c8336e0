"""Finds the first element that differs in the snapshots, checkpoints and solutions that two runs kept.

Global arrays are compared, so rank counts may differ. An element is named by its global index and by its block.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from analysis.divergence.points import Comparison
from analysis.load.frames import Frames
from kernels.bits import ranks
from miniapps.untrusted import contents
from miniapps.untrusted.records import conform
from miniapps.untrusted.regular import Refused, kind_of
from miniapps.untrusted.sealed import read_sealed
from miniapps.untrusted.text import printable

FOLDERS = ("snapshots", "checkpoints")
OF_A_STEP = re.compile(r"repeat-([0-9]+)-step-([0-9]+)\.h5")
FIRST = ("zeta", "psi")  # fields in the order in which a step computes them; others follow by name
SHOWN = 3  # sentences on files that cannot be read: a run may have kept thousands


class Grid(msgspec.Struct):
    """The options of a grid, or of the rows of a matrix, that determine the block of an element."""

    nx: int | None = None
    ny: int | None = None
    nz: int | None = None
    bx: int | None = None
    by: int | None = None
    bz: int | None = None
    rows_per_block: int | None = None


class Config(msgspec.Struct):
    """The configuration of a run: only its grid."""

    grid: Grid = msgspec.field(default_factory=Grid)


@dataclass(frozen=True)
class Element:
    """One element of a field in two files.

    file, field   the path within the run, and the array in this file
    index         in the global array
    block, local  its block and its index there; -1 and () if the array has no blocks
    a, b          the numbers, in the type of the file
    ulp           their distance in ULP; NaN if one is NaN
    differing     how many of the `elements` of the field differ
    furthest, most   the index of the largest distance, and this distance in ULP
    """

    file: str
    field: str
    index: tuple[int, ...]
    block: int
    local: tuple[int, ...]
    a: np.floating
    b: np.floating
    ulp: float
    differing: int
    elements: int
    furthest: tuple[int, ...]
    most: float


def first_element(frames: Frames, comparison: Comparison) -> tuple[Element | None, list[str]]:
    """The first element that differs, and sentences on files that could not be read.

    The files that both runs have are read in order of steps, from the first differing step on, until one differs. The
    element is None if no file differs.
    """
    if comparison.first is None:
        return None, []
    runs = frames.runs.set_index(["run", "repeat"])
    unread: list[str] = []
    rows = [runs.loc[run] for run in (comparison.a, comparison.b)]
    kept = [
        _files(Path(row["path"]), run[1], unread)
        for row, run in zip(rows, (comparison.a, comparison.b), strict=True)
    ]
    element, grid = None, grid_of(rows[0]["config"])
    for step, name in sorted(set(kept[0]) & set(kept[1])):
        if step < comparison.first.step - 1:  # a file of step k holds the state that enters step k + 1
            continue
        paths = kept[0][step, name], kept[1][step, name]
        left, right = (_fields(path, unread) for path in paths)
        if element := _compared(paths[0], left, right, grid):
            break
    more = len(unread) - SHOWN
    return element, unread[:SHOWN] + ([f"{more} more files cannot be read"] if more > 0 else [])


def read_fields(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a snapshot, checkpoint or solution, by name.

    Raises Refused if the file is damaged, of another form or a link, OSError if it cannot be read.
    """
    image, _ = read_sealed(path)
    where, fields = printable(str(path)), {}
    room = contents.Room(image)
    with contents.opened(image, where) as root:
        for name in contents.names(root, where):
            fields[name] = contents.array(root, name, where, room)
    return fields


def _fields(path: Path, unread: list[str]) -> dict[str, np.ndarray]:
    """The fields of a file. If it cannot be read: no fields, and a sentence is added to `unread`."""
    try:
        return read_fields(path)
    except Refused as error:
        unread.append(str(error))
    except OSError as error:
        unread.append(f"{printable(str(path))}: cannot be read: {error.strerror}; make it readable")
    return {}


def _files(run: Path, repeat: int, unread: list[str]) -> dict[tuple[float, str], Path]:
    """{(step, kind): path} of the files of a repeat; the step of a solution is infinite."""
    files: dict[tuple[float, str], Path] = {}
    for folder in FOLDERS:
        kind = kind_of(run / folder)
        if kind != "a directory":
            if kind:
                unread.append(f"{printable(str(run / folder))}: is {kind}, and is not followed; leave it out")
            continue
        try:
            paths = list((run / folder).iterdir())
        except OSError as error:
            unread.append(
                f"{printable(str(run / folder))}: cannot be read: {error.strerror}; make it readable"
            )
            continue
        for path in paths:
            if (named := OF_A_STEP.fullmatch(path.name)) and int(named[1]) == repeat:
                files[int(named[2]), folder] = path
    solution = run / f"solution-repeat-{repeat}.h5"
    if os.path.lexists(solution):
        files[np.inf, "solution"] = solution
    return files


def grid_of(config: str) -> Grid:
    """The grid in the JSON text `config`; an empty Grid if it has none, or one of another form."""
    try:
        return conform(json.loads(config), Config, "config").grid
    except Refused:
        return Grid()


def _compared(
    path: Path, left: dict[str, np.ndarray], right: dict[str, np.ndarray], grid: Grid
) -> Element | None:
    fields = sorted(set(left) & set(right), key=lambda name: (name not in FIRST, name != FIRST[0], name))
    for field in fields:
        x, y = left[field], right[field]
        if x.dtype == y.dtype and x.shape == y.shape and x.dtype in (np.float64, np.float32):
            element = _of_field(path, field, x, y, grid)
            if element is not None:
                return element
    return None


def _of_field(path: Path, field: str, x: np.ndarray, y: np.ndarray, grid: Grid) -> Element | None:
    pattern = f"u{x.itemsize}"
    changed = np.flatnonzero(x.view(pattern) != y.view(pattern))
    if not len(changed):
        return None
    ulps = ulp_between(x.reshape(-1)[changed], y.reshape(-1)[changed])
    where = np.unravel_index(int(changed[0]), x.shape)
    index = tuple(map(int, where))
    most = int(np.argmax(np.where(np.isnan(ulps), np.inf, ulps)))
    block, local = block_of(field, index, x.shape, grid)
    return Element(
        str(Path(*path.parts[-2:]) if path.parent.name in FOLDERS else path.name),
        field, index, block, local, x[where], y[where], float(ulps[0]), len(changed), x.size,
        tuple(map(int, np.unravel_index(int(changed[most]), x.shape))), float(ulps[most]),
    )  # fmt: skip


def ulp_between(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The distances of `a` and `b`, both float64 or both float32, in ULP: float64, NaN where one is NaN."""
    if a.dtype.itemsize == 8:
        low, high = ranks(a), ranks(b)
    else:  # 0x80000000 and up are negative: the same map as `ranks` on half the bits
        low, high = (_ranks32(x) for x in (a, b))
    distance = np.where(low > high, low - high, high - low).astype(np.float64)
    return np.where(np.isnan(a) | np.isnan(b), np.nan, distance)


def _ranks32(x: np.ndarray) -> np.ndarray:
    bits, sign = x.view(np.uint32), np.uint32(1 << 31)
    return np.where(bits & sign, ~bits, bits | sign)


def block_of(
    field: str, index: tuple[int, ...], shape: tuple[int, ...], grid: Grid
) -> tuple[int, tuple[int, ...]]:
    """(block, index in the block) of an element of a grid or of the rows of a matrix; (-1, ()) for other arrays."""
    axes = "zyx"[-len(shape) :]
    if len(shape) > 1 and shape == tuple(getattr(grid, f"n{axis}") for axis in axes):
        edges = [getattr(grid, f"b{axis}") or 0 for axis in axes]
        if min(edges) > 0:
            at = [i // edge for i, edge in zip(index, edges, strict=True)]
            counts = [-(-n // edge) for n, edge in zip(shape, edges, strict=True)]
            block = int(np.ravel_multi_index(at, counts))
            return block, tuple(i % edge for i, edge in zip(index, edges, strict=True))
    edge = grid.rows_per_block or 0
    if len(shape) == 1 and field == "x" and edge > 0:
        return index[0] // edge, (index[0] % edge,)
    return -1, ()
