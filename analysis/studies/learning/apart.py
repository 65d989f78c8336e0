"""Differences between the weights of runs that differ in one factor: a seed, an order, a wire, the number of ranks.

Every evaluation records a sample of the weights (`weights_sample`, block = place in the sample). Each run is compared
with the first run that shares all other factors.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pandas as pd

from analysis.history import named
from analysis.load.frames import Frames
from analysis.studies.contract import frame
from analysis.studies.learning.runs import Trainings
from kernels import bits
from kernels.as_json import Column

SAMPLE = "weights_sample"
OF_LINES = ("wire", "guarantee", "ordering", "ranks")  # factors that distinguish lines; all others are seeds
APART = {
    "family": Column("str"), "factor": Column("str", "a seed, `wire`, `guarantee`, `ordering` or `ranks`"),
    "step": Column("int64"), "pairs": Column("int64"),
    "v_ermv": Column("float64", "of a sample of the weights, median over pairs"), "v_ermv_least": Column("float64"),
    "v_ermv_most": Column("float64"), "v_c": Column("float64", "of these, median over pairs"),
}  # fmt: skip


def apart(known: Trainings) -> pd.DataFrame:
    """A row per family, factor and step of an evaluation; columns APART: the number of `pairs`, the median and range of
    V_ermv over them, and the median V_c. A factor needs runs with samples that differ in it alone."""
    rows = []
    complete = known.runs[known.runs["complete"]]
    for family, same in complete.groupby("family", sort=False):
        places = list(same[["run", "repeat", "rate", "line"]].itertuples(index=False, name=None))
        samples = {(run, repeat): _samples(known.frames, run, repeat) for run, repeat, *_ in places}
        factors = sorted({factor for run, repeat, *_ in places for factor in known.levels[run, repeat]})
        for factor in factors:
            rows += _of_factor(known, family, factor, places, samples)
    return frame(rows, APART)


def _of_factor(known: Trainings, family: str, factor: str, places, samples) -> list[dict]:
    def rest(place) -> str:
        run, repeat, rate, line = place
        others = {key: level for key, level in known.levels[run, repeat].items() if key != factor}
        return f"{rate} {'' if factor in OF_LINES else line} {sorted(others.items())}"

    distances: dict[int, list[tuple[float, float]]] = {}
    for _, group in groupby(sorted(places, key=rest), key=rest):
        members = [(run, repeat) for run, repeat, *_ in group]
        by_level = {known.levels[member].get(factor): member for member in reversed(members)}
        first, *others = (by_level[level] for level in sorted(by_level, key=str))
        for other in others:
            for step in sorted(samples[first].keys() & samples[other].keys()):
                a, b = samples[first][step], samples[other][step]
                if a.shape == b.shape:
                    distances.setdefault(step, []).append(
                        (float(bits.v_ermv(a, b)[0]), bits.differ(a, b).mean())
                    )
    return [
        {
            "family": family, "factor": factor, "step": step, "pairs": len(pairs),
            "v_ermv": np.median([v for v, _ in pairs]), "v_ermv_least": min(v for v, _ in pairs),
            "v_ermv_most": max(v for v, _ in pairs), "v_c": np.median([c for _, c in pairs]),
        }
        for step, pairs in sorted(distances.items())
    ]  # fmt: skip


def _samples(frames: Frames, run: str, repeat: int) -> dict[int, np.ndarray]:
    """{step: the sample, in the order of its places}."""
    values = frames.of("values", run, repeat)
    own = values[named(values, SAMPLE)].sort_values(["step", "block"], kind="stable")
    return {int(step): same["value"].to_numpy() for step, same in own.groupby("step")}
