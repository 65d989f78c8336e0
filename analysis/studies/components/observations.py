"""Observations for variance components: the outcomes and factor levels of each complete (run, repeat)."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.groups import IN_LABEL, factors, grouped, problem_names
from analysis.load.frames import Frames
from analysis.runs import ids

WALL = "wall time"
# Random factors, outermost first: the scheduler's placement of a run, and its launch. Repeats are the residual.
ALLOCATION, NODE, LAUNCH, REPEAT = "allocation", "node", "launch", "repeat"
RANDOM = (ALLOCATION, NODE, LAUNCH)
PLURAL = {ALLOCATION: "allocations", NODE: "nodes", LAUNCH: "launches", REPEAT: "repeats of a launch"}
# Effects of options that do not count as a choice of algorithm; the ordering is a factor of its own.
NO_FACTOR = (*IN_LABEL, "fault", "replay")


@dataclass(frozen=True)
class Observations:
    """The complete runs of one problem of one `app`. `problem` in words, empty for the only one; `levels`: a column per
    factor, first those of the algorithm (`treatments`), then RANDOM; `outcomes`: a float64 column each, NaN for
    non-finite numbers; `scale` {outcome: "log", "relative" or "absolute"}; `steps` {outcome: its step}, without the
    wall time."""

    app: str
    problem: str
    levels: pd.DataFrame
    treatments: tuple[str, ...]
    outcomes: pd.DataFrame
    scale: dict[str, str]
    steps: dict[str, int]


def observations(frames: Frames) -> list[Observations]:
    """The observations of each problem with complete runs without an injected fault.

    Outcomes are the logarithm of `wall_s`, and a number for every name recorded with block -1: its last number in the
    last step that all these runs recorded. It is a relative deviation (x - median) / |median|, or unscaled for a median
    of 0.
    """
    runs = grouped(frames.runs)
    runs = runs[runs["complete"] & ~runs["faulty"]]
    names = problem_names(frames.runs)
    return [
        _of_problem(frames, str(app), names[problem], members.reset_index(drop=True))
        for (app, problem), members in runs.groupby(["app", "problem"], sort=False)
    ]


def _of_problem(frames: Frames, app: str, problem: str, runs: pd.DataFrame) -> Observations:
    levels = _treatments(runs)
    treatments = tuple(levels)
    levels[ALLOCATION] = runs["allocation_id"]
    levels[NODE] = [str(json.loads(text).get("node", "")) for text in runs["environment"]]
    levels[LAUNCH] = runs["run"].astype("str")
    with np.errstate(all="ignore"):
        outcomes = {WALL: np.log(runs["wall_s"].where(runs["wall_s"] > 0).to_numpy(np.float64))}
    scale = {WALL: "log"}
    steps = {}
    for name, (step, values) in _finals(frames, runs).items():
        outcomes[name], scale[name] = _deviation(values)
        steps[name] = step
    return Observations(app, problem, levels, treatments, pd.DataFrame(outcomes), scale, steps)


def _treatments(runs: pd.DataFrame) -> pd.DataFrame:
    """The factors of the algorithm that vary among `runs`, as text."""
    treatments = {
        "guarantee": runs["guarantee"],
        "ordering": runs["ordering"],
        "ranks": runs["size"].astype("str"),
    }
    methods = [
        factors(method, options, NO_FACTOR)
        for method, options in zip(runs["method"], runs["options"], strict=True)
    ]
    for name in dict.fromkeys(name for method in methods for name in method):
        treatments[name] = pd.Series([json.dumps(method.get(name)) for method in methods])
    return pd.DataFrame({name: column.astype("str") for name, column in treatments.items() if column.nunique() > 1},
                        index=runs.index)  # fmt: skip


def _finals(frames: Frames, runs: pd.DataFrame) -> dict[str, tuple[int, np.ndarray]]:
    """{name: (step, number of each run)} at the last step with a global number of that name in all `runs`."""
    own = pd.MultiIndex.from_tuples(ids(runs))
    values = frames.values[(frames.values["block"] == -1).to_numpy()]
    values = values[["run", "repeat", "step", "name", "seq", "value"]].astype({"run": "str", "name": "str"})
    values = values[pd.MultiIndex.from_frame(values[["run", "repeat"]]).isin(own)]
    last = values.drop_duplicates(["run", "repeat", "step", "name"], keep="last")  # sorted by occurrence
    finals = {}
    for name in last.sort_values("seq", kind="stable")["name"].unique():
        same = last[last["name"] == name]
        every = same["step"].value_counts()
        if len(common := every.index[every == len(runs)]):
            rows = same[same["step"] == common.max()].set_index(["run", "repeat"])["value"]
            finals[name] = int(common.max()), rows.reindex(own).to_numpy(np.float64)
    return finals


def _deviation(values: np.ndarray) -> tuple[np.ndarray, str]:
    known = np.where(np.isfinite(values), values, np.nan)
    if np.isnan(known).all():
        return known, "absolute"
    middle = np.nanmedian(known)
    if middle == 0:
        return known, "absolute"
    return (known - middle) / abs(middle), "relative"
