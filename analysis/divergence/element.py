"""The first element in which the files of two runs differ: snapshots, checkpoints and solutions, where they were kept.

Global arrays are compared, so that rank counts may differ; the elements are named by global index and by block.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from analysis.bits import ranks
from analysis.divergence.compare import Comparison
from analysis.load.frames import Frames

PATTERNS = ("snapshots/repeat-{}-step-*.h5", "checkpoints/repeat-{}-step-*.h5", "solution-repeat-{}.h5")
FIRST = ("zeta", "psi")  # fields in the order in which a step computes them; others follow by name


@dataclass(frozen=True)
class Element:
    """One number of two files. `file` within the run, `field` in it, `index` in the global array and `local` in its
    `block` (-1, () where the array has no blocks), `a` and `b` the numbers in the type of the file, `ulp` how many
    numbers of that type lie from one to the other (NaN for NaN); `differing` of `elements` differ in this field, the
    furthest, by ULP, at `furthest` by `most`."""

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


def first_element(frames: Frames, found: Comparison) -> Element | None:
    """The first element that differs in the earliest file of both runs, from the first differing step on, that does;
    None where there is no such file or the files are equal."""
    if found.first is None:
        return None
    runs = frames.runs.set_index(["run", "repeat"])
    rows = [runs.loc[run] for run in (found.a, found.b)]
    kept = [_files(Path(row["path"]), run[1]) for row, run in zip(rows, (found.a, found.b), strict=True)]
    for step, name in sorted(set(kept[0]) & set(kept[1])):
        if step < found.first.step - 1:  # a file of step k holds the state that enters step k + 1
            continue
        element = _compared(kept[0][step, name], kept[1][step, name], json.loads(rows[0]["config"]))
        if element is not None:
            return element
    return None


def _files(run: Path, repeat: int) -> dict[tuple[float, str], Path]:
    """{(step, kind): path}; a solution comes after all steps."""
    found = {}
    for pattern in PATTERNS:
        for path in run.glob(pattern.format(repeat)):
            step = re.search(r"-step-(\d+)\.h5$", path.name)
            found[int(step[1]) if step else np.inf, path.parent.name if step else "solution"] = path
    return found


def _compared(a: Path, b: Path, config: dict) -> Element | None:
    try:
        with h5py.File(a, "r") as left, h5py.File(b, "r") as right:
            fields = sorted(
                set(left) & set(right), key=lambda name: (name not in FIRST, name != FIRST[0], name)
            )
            for field in fields:
                x, y = left[field][...], right[field][...]
                if x.dtype == y.dtype and x.shape == y.shape and x.dtype.kind == "f":
                    element = _of_field(a, field, x, y, config)
                    if element is not None:
                        return element
    except OSError:  # a file that was cut short says nothing
        return None
    return None


def _of_field(path: Path, field: str, x: np.ndarray, y: np.ndarray, config: dict) -> Element | None:
    pattern = f"u{x.itemsize}"
    changed = np.flatnonzero(x.view(pattern) != y.view(pattern))
    if not len(changed):
        return None
    ulps = ulp_between(x.reshape(-1)[changed], y.reshape(-1)[changed])
    where = np.unravel_index(int(changed[0]), x.shape)
    index = tuple(map(int, where))
    most = int(np.argmax(np.where(np.isnan(ulps), np.inf, ulps)))
    block, local = _block(field, index, x.shape, config)
    return Element(
        str(Path(*path.parts[-2:]) if path.parent.name in ("snapshots", "checkpoints") else path.name),
        field, index, block, local, x[where], y[where], float(ulps[0]), len(changed), x.size,
        tuple(map(int, np.unravel_index(int(changed[most]), x.shape))), float(ulps[most]),
    )  # fmt: skip


def ulp_between(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How many numbers of their own type lie from float64 or float32 `a` to `b`: float64, NaN where one is NaN."""
    if a.dtype.itemsize == 8:
        low, high = ranks(a), ranks(b)
    else:  # 0x80000000 and up are negative: the same map as `ranks` on half the bits
        low, high = (_ranks32(x) for x in (a, b))
    distance = np.where(low > high, low - high, high - low).astype(np.float64)
    return np.where(np.isnan(a) | np.isnan(b), np.nan, distance)


def _ranks32(x: np.ndarray) -> np.ndarray:
    bits, sign = x.view(np.uint32), np.uint32(1 << 31)
    return np.where(bits & sign, ~bits, bits | sign)


def _block(
    field: str, index: tuple[int, ...], shape: tuple[int, ...], config: dict
) -> tuple[int, tuple[int, ...]]:
    """(block, index within it) of an element of a grid or of the rows of a matrix; (-1, ()) of anything else."""
    grid = config.get("grid", {})
    names = ("nz", "ny", "nx")[-len(shape) :]
    if len(shape) > 1 and shape == tuple(grid.get(name) for name in names):
        edges = [grid["b" + name[1]] for name in names]
        at = [i // edge for i, edge in zip(index, edges, strict=True)]
        counts = [-(-n // edge) for n, edge in zip(shape, edges, strict=True)]
        block = int(np.ravel_multi_index(at, counts))
        return block, tuple(i % edge for i, edge in zip(index, edges, strict=True))
    if len(shape) == 1 and field == "x" and "rows_per_block" in grid:
        return index[0] // grid["rows_per_block"], (index[0] % grid["rows_per_block"],)
    return -1, ()
