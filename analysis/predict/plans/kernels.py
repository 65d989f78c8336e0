"""Seconds of the works of a program, from a calibration that measured such works (`miniapps.calibrate.programs`).

A work of the same kernel and size has the measured time. Other sizes get a model of the kernel (`KernelTimes`), which
says how far off it may be. With fewer measured sizes than it needs, the time scales with the operations or bytes of the
nearest one; how far off that is, the measured sizes say of each other.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from math import log

import numpy as np
import pandas as pd
from scipy.optimize import nnls
from threadpoolctl import threadpool_limits

from analysis.errors import Unreachable
from analysis.predict.costs.kernel_times import KernelTimes
from analysis.predict.reading.calibration import Calibration
from miniapps.untrusted.program import Work

FEWEST = 6  # sizes for a model of a kernel
MOST = 64  # sizes that a model is fitted to: its time grows with their cube
UNKNOWN = 0.3  # error of a scaled time, of its logarithm, in a calibration with one size of every kernel
REST, KERNEL = "rest", "kernel "
_PARTS = re.compile(
    r"(?P<name>traced events|\S+)(?: (?P<by>own|torch)\b)?(?P<dtypes>(?: (?:bool|[a-z]*(?:int|float|complex)\d+)'?)*)"
    r"(?P<more>.*?)(?: by \d+)?",
    re.DOTALL,
)
_USUAL = re.compile(
    r"(stride|dilation) [(\[][1, ]+[)\]]|groups 1\b|\bdirect\b|\b(True|False) (?=.*of \d+ dims)"
)
_DIMS = re.compile(r"[(\[]?(-?\d[-\d, ]*?),?[)\]]? of (\d+) dims")
LeftOut = dict[tuple[int, ...], tuple[float, float]]  # {dims: seconds, standard deviation of their logarithm}


@dataclass
class WorkTimes:
    """Seconds of works on the calibration's machine."""

    calibration: Calibration
    _by_key: dict[str, pd.DataFrame] = field(init=False)
    _hidden: Collection[tuple[str, tuple[int, ...]]] = ()
    _models: dict[str, tuple[KernelTimes, LeftOut]] = field(default_factory=dict)

    def __post_init__(self):
        self._by_key = dict(tuple(works_in(self.calibration).groupby("key", sort=False)))

    def require(self, works: Sequence[Work]) -> None:
        """Raises Unreachable, which names the kernels that were not measured."""
        lacking = sorted({work.key for work in works} - self._by_key.keys())
        if lacking:
            others = f" and {len(lacking) - 1} others" if len(lacking) > 1 else ""
            raise Unreachable(
                f"{self.calibration.path}: has no time of {readable(lacking[0])}{others}; calibrate with "
                "the plans to be priced: fpna calibrate --plan 'MODEL RECIPE SIZE=LOW..HIGH'"
            )

    def without(self, works: Collection[Work]) -> WorkTimes:
        """The same, but the times of `works` come from other sizes of their kernels, if there are any."""
        found = copy(self)
        found._hidden = {(work.key, work.dims) for work in works}
        return found

    def seconds(self, works: Sequence[Work]) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """((n,) seconds of a call of each work, (n, 2) standard deviations of their logarithms, 0 where they were
        measured, what was not measured). The first is common to all sizes of a kernel, the second of this size alone.
        Raises Unreachable as `require`."""
        self.require(works)
        marks: dict[str, list[str]] = {}
        found, errors = np.empty(len(works)), np.zeros((len(works), 2))
        by: dict[str, list[int]] = {}
        for k, work in enumerate(works):
            by.setdefault(work.key, []).append(k)
        for key, places in by.items():
            found[places], errors[places], mark = self._of(key, [works[k] for k in places])
            if mark:
                marks.setdefault(mark, []).append(readable(key))
        return (
            found,
            errors,
            [
                f"{mark} of {names[0] if len(names) == 1 else f'{len(names)} kernels'}"
                for mark, names in marks.items()
            ],
        )

    def rest(self, counts: np.ndarray) -> np.ndarray:
        """(n,) seconds between the calls of segments with `counts` (n, 4): calls, views, copies, copied bytes."""
        if not np.any(counts):  # of an application whose works are its whole step
            return np.zeros(len(counts))
        return np.asarray(counts, float) @ self._between[0]

    @property
    def rest_error(self) -> float:
        """Standard deviation of the logarithm of what `rest` returns for a whole step; 0 if no step was measured."""
        return self._between[1] if REST in self._by_key else 0.0

    @cached_property
    def _between(self) -> tuple[np.ndarray, float]:
        """((4,) seconds of each of the counts between calls, error of their sum)."""
        measured = self._by_key.get(REST)
        if measured is None:
            raise Unreachable(f"{self.calibration.path}: measured no step of a plan; calibrate with --plan")
        design = np.array(measured["dims"].tolist(), float) - 1.0
        seconds = measured["seconds"].to_numpy(float)
        scale = np.maximum(design.max(axis=0), 1.0)
        weight = 1.0 / np.sqrt(seconds.mean() * (seconds + 1e-6))  # between absolute and relative squares
        fitted = nnls(design / scale * weight[:, None], seconds * weight)[0] / scale
        free = max(len(design) - np.count_nonzero(fitted), 1)
        off = np.log(np.maximum(design @ fitted, 1e-9) / seconds)
        return fitted, float(np.sqrt((off**2).sum() / free))

    @cached_property
    def _scaling(self) -> float:
        """The error of scaling from a single size: that of kernels with several sizes."""
        known = [_scaling_error(rows.iloc[:FEWEST]) for rows in self._by_key.values() if len(rows) > 1]
        return float(np.sqrt(np.mean(np.square(known)))) if known else UNKNOWN

    def _of(self, key: str, works: list[Work]) -> tuple[np.ndarray, np.ndarray, str]:
        measured = self._by_key[key]
        known = dict(zip(measured["dims"], measured["seconds"], strict=True))
        if len(known) > 1:
            known = {dims: seconds for dims, seconds in known.items() if (key, dims) not in self._hidden}
        found = np.array([known.get(work.dims, np.nan) for work in works])
        errors = np.zeros((len(works), 2))
        new = np.flatnonzero(np.isnan(found))
        if not len(new):
            return found, errors, ""
        wanted = [works[k] for k in new]
        if len(measured) < FEWEST:
            found[new] = [_scaled(measured, work) for work in wanted]
            errors[new, 0] = _scaling_error(measured) if len(measured) > 1 else self._scaling
            return found, errors, f"other sizes than the few (below {FEWEST})"
        model, left_out = self._model(key)
        shapes = np.array([work.dims for work in wanted], float)
        found[new], of_shape, outside = model.seconds(
            shapes, [work.flops for work in wanted], [work.nbytes for work in wanted]
        )
        for k, work in enumerate(wanted):
            if work.dims in left_out:
                found[new[k]], of_shape[k] = left_out[work.dims]
        errors[new, 0] = np.sqrt(np.maximum(of_shape**2 - model.noise**2, 0.0))
        errors[new, 1] = model.noise
        return found, errors, "sizes" if outside.any() else ""

    def _model(self, key: str) -> tuple[KernelTimes, LeftOut]:
        """The model of a kernel, and what it says of measured sizes without them."""
        if key not in self._models:
            rows = _spread_out(self._by_key[key], MOST)
            with threadpool_limits(1):  # small systems: threads would wait for each other
                operation = key.removeprefix(KERNEL).partition(" ")[0]
                dims = np.array(rows["dims"].tolist(), float)
                model = KernelTimes(dims, rows["flops"], rows["nbytes"], rows["seconds"], operation)
            seconds, errors = model.left_out
            self._models[key] = (
                model,
                dict(zip(rows["dims"], zip(seconds.tolist(), errors.tolist(), strict=True), strict=True)),
            )
        return self._models[key]


def works_in(calibration: Calibration) -> pd.DataFrame:
    """The measured works: `key`, `dims`, `seconds`, `flops`, `nbytes`."""
    cases = calibration.cases[calibration.cases["region"].str.contains("@", regex=False)]
    parts = [region.rpartition("@") for region in cases["region"]]
    dims = [tuple(map(int, text.split("x"))) for *_, text in parts]
    return cases[["seconds", "flops", "nbytes"]].assign(
        key=[key for key, *_ in parts], dims=pd.Series(dims, cases.index, object)
    )


def readable(key: str) -> str:
    """A key of a work in words: the operation, whose kernel it is, the dtypes of its operands, what is unusual. Equal
    dtypes in sequence stand once; `strided`: the elements of an operand are not in the order of memory. Keys that
    differ in how many dims count may have the same words."""
    found = _PARTS.fullmatch(key.removeprefix(KERNEL))
    if found is None:  # of no such kernel, in a file of somebody else
        return key
    name = found["name"].strip("_").replace("_", " ").removeprefix("native ")
    backward = "backward" in name
    name = re.sub(" (dense )?backward( data)?", "", name)
    if name.startswith("scaled dot product"):
        name = "attention"
    dtypes = [dtype.replace("'", " strided") for dtype, _ in groupby(found["dtypes"].split())]
    more = _DIMS.sub(r", dims \1 of \2", _USUAL.sub("", found["more"]))
    parts = [name, "backward" * backward, found["by"] or "", *dtypes, *re.split(r",(?= dims)", more)]
    return ", ".join(" ".join(part.split()) for part in parts if part.strip())


def _scaled(measured: pd.DataFrame, work: Work) -> float:
    """The time of the measured size nearest to a work's, not its own, in proportion to operations, or else bytes."""
    dims = np.log(np.array(measured["dims"].tolist(), float))
    far = ((dims - np.log(work.dims)) ** 2).sum(axis=1)
    near = measured.iloc[int(np.where(far > 0.0, far, np.inf).argmin())]
    if work.flops and near["flops"]:
        ratio = work.flops / near["flops"]
    else:
        ratio = max(work.nbytes, 1) / max(near["nbytes"], 1.0)
    overhead = min(1.0, 2e-6 / near["seconds"])  # a short call is mostly overhead
    return float(near["seconds"] * (overhead + (1.0 - overhead) * ratio))


def _scaling_error(measured: pd.DataFrame) -> float:
    """Root mean square of ln(scaled / measured) of each size, scaled from the nearest of the others."""
    off = []
    for k in range(len(measured)):
        row = measured.iloc[k]
        work = Work(row["key"], row["dims"], int(row["flops"]), int(row["nbytes"]))
        off.append(log(_scaled(measured, work) / row["seconds"]))
    return float(np.sqrt(np.mean(np.square(off))))


def _spread_out(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """At most `most` rows, of sizes far from each other: each next one is the farthest from those taken."""
    if len(rows) <= most:
        return rows
    x = np.log(np.array(rows["dims"].tolist(), float))
    taken = [int(x.sum(axis=1).argmax())]
    far = ((x - x[taken[0]]) ** 2).sum(axis=1)
    while len(taken) < most:
        taken.append(int(far.argmax()))
        far = np.minimum(far, ((x - x[taken[-1]]) ** 2).sum(axis=1))
    return rows.iloc[taken]
