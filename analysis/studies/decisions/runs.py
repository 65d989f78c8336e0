"""Reads the decisions that runs recorded (`Tracer.decisions`), and says what differs between two runs."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.factors import NO_KERNEL
from analysis.groups import factors, grouped, of_effect, problem_names
from analysis.load.frames import Frames
from analysis.runs import Id, ids, label
from miniapps.trace.records import DECISION, MARGIN

NOTHING = "nothing: run to run"
GUARANTEE, ORDER, RANKS, THREADS, METHOD = "guarantee", "order of sums", "ranks", "threads", "method"
SEVERAL = "several of these"
CHOSEN_BY_GUARANTEE = (ORDER, METHOD)


@dataclass(frozen=True)
class Decided:
    """The decisions `name` of the runs of one problem, `family` in words.

    `runs`: labels; `levels` {factor: level of each run (runs,)}; `steps`, `blocks` (decisions,): of each decision, in
    the order in which the first run made it; `outcomes`, `margins` float64 (runs, decisions), NaN where a run did not
    make the decision, or did not record a margin."""

    app: str
    family: str
    name: str
    runs: list[str]
    levels: dict[str, np.ndarray]
    steps: np.ndarray
    blocks: np.ndarray
    outcomes: np.ndarray
    margins: np.ndarray


def recorded(frames: Frames) -> list[Decided]:
    """The decisions of all complete runs without an injected fault, by problem and name; none without two runs of a
    problem that recorded them."""
    runs = grouped(frames.runs)
    runs = runs[(runs["complete"] & ~runs["faulty"]).to_numpy(bool)]
    names = problem_names(runs)
    found = []
    for (app, problem), same in runs.groupby(["app", "problem"], sort=False):
        own = {run: _of_run(frames, run) for run in ids(same)}
        for name in dict.fromkeys(name for rows in own.values() for name in rows["name"].unique()):
            having = [bool((rows["name"] == name).any()) for rows in own.values()]
            if sum(having) > 1:
                chosen = same[np.array(having)]
                rows = {run: own[run][(own[run]["name"] == name).to_numpy()] for run in ids(chosen)}
                found.append(_decided(str(app), names[problem], name, chosen, rows))
    return found


def factor_of(differing: set[str]) -> str:
    """The factor between two runs that differ in the levels of `differing`. A guarantee chooses orders and methods, so
    these do not count beside it."""
    left = differing - set(CHOSEN_BY_GUARANTEE) if GUARANTEE in differing else differing
    if not left:
        return NOTHING
    return next(iter(left)) if len(left) == 1 else SEVERAL


def _of_run(frames: Frames, run: Id) -> pd.DataFrame:
    """The decisions of a run: `name`, `block`, `count` of this name and block from 0, `step`, `outcome`, `margin`."""
    values = frames.of("values", *run)
    text = values["name"].astype("str")
    parts = []
    for prefix in (DECISION, MARGIN):
        chosen = text.str.startswith(prefix).to_numpy()
        own = values[chosen]
        parts.append(own.assign(name=text[chosen].str.removeprefix(prefix)))
    key = ["name", "block", "step", "occurrence"]
    outcomes, margins = (part[[*key, "seq", "value"]] for part in parts)
    rows = outcomes.merge(margins.drop(columns="seq"), on=key, how="left", suffixes=("", "_of_margin"))
    rows = rows.sort_values(["name", "step", "seq"], kind="stable")
    rows["count"] = rows.groupby(["name", "block"], sort=False).cumcount()
    return rows.rename(columns={"value": "outcome", "value_of_margin": "margin"})


def _decided(app: str, family: str, name: str, runs: pd.DataFrame, rows: dict[Id, pd.DataFrame]) -> Decided:
    every = pd.concat(rows.values(), keys=range(len(rows)), names=["run", None]).reset_index("run")
    index = pd.MultiIndex.from_frame(every[["block", "count"]])
    code, keys = pd.factorize(index)  # in the order of appearance: that of the first run
    first = np.unique(code, return_index=True)[1]
    tables = []
    for column in ("outcome", "margin"):
        table = np.full((len(rows), len(keys)), np.nan)
        table[every["run"].to_numpy(), code] = every[column].to_numpy(np.float64)
        tables.append(table)
    return Decided(
        app, family, name, list(map(label, rows)), _levels(runs), every["step"].to_numpy()[first],
        every["block"].to_numpy()[first], *tables,
    )  # fmt: skip


def _levels(runs: pd.DataFrame) -> dict[str, np.ndarray]:
    """{factor: the level of each of `runs`}"""
    stated = list(zip(runs["method"], runs["options"], strict=True))
    methods = [factors(*each, (*NO_KERNEL, "guarantee", "processor")) for each in stated]
    return {
        GUARANTEE: runs["guarantee"].to_numpy(str),
        ORDER: runs["ordering"].to_numpy(str),
        RANKS: runs["size"].to_numpy(str),
        THREADS: np.array([json.dumps(of_effect(*each, "threads")) for each in stated]),
        METHOD: np.array([json.dumps(method, sort_keys=True) for method in methods]),
    }
