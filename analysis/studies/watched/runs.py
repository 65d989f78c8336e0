"""Compares watched models module by module: the state of each module and pass by step, and sizes of differences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.divergence.compare import NothingInCommon, compare
from analysis.divergence.later import sized_differences
from analysis.divergence.points import Comparison
from analysis.divergence.recorded import common_of
from analysis.divergence.steps import by_step
from analysis.load.frames import Frames
from analysis.runs import Id, label
from analysis.studies.contract import frame
from kernels.as_json import Column
from kernels.sizes import sampled
from miniapps.trace.records import (
    BEFORE,
    DATA,
    GIVEN,
    GRADIENT,
    LOSS,
    OUTPUT,
    OUTPUT_GRADIENT,
    RANDOM,
    UPDATE,
    WATCHED,
    WEIGHTS,
)

FORWARD, BACKWARD, UPDATED = PASSES = ("forward", "backward", "weights")
INPUT, LAST = "input", "loss"
MODULE = re.compile(r"[^()]* \([^()]*\)")  # `layers.0.norm (LayerNorm)`
PASS_OF = {
    RANDOM: FORWARD, DATA: FORWARD, GIVEN: FORWARD, OUTPUT: FORWARD, LOSS: FORWARD, OUTPUT_GRADIENT: BACKWARD,
    GRADIENT: BACKWARD, UPDATE: BACKWARD, WEIGHTS: UPDATED, BEFORE: UPDATED,
}  # fmt: skip
EQUAL, FIRST, DIFFERS = "equal", "first", "differs"
SIZED = {"gradients": (GRADIENT, UPDATE), "weights": (WEIGHTS,)}

FIRSTS = {
    "run": Column("str"), "against": Column("str"), "step": Column("int64", "of the first difference; -1: none"),
    "module": Column("str", "`NAME (CLASS)`, `input` or `loss`; empty without a difference"),
    "pass": Column("str", "`forward`, `backward`, `weights`"), "name": Column("str", "of the record"),
    "modules": Column("int64", "that were recorded"), "differing": Column("int64", "modules that differ at some step"),
}  # fmt: skip
STATES = {
    "run": Column("str"), "against": Column("str"), "module": Column("str", "in the order of computation"),
    "pass": Column("str"), "step": Column("int64"), "records": Column("int64"),
    "differing": Column("int64", "records whose bits differ"),
    "state": Column("str", "`equal`, `first` (the first difference of all) or `differs`"),
}  # fmt: skip
SIZES = {
    "run": Column("str"), "against": Column("str"), "what": Column("str", "`gradients`, `weights`"),
    "step": Column("int64"), "names": Column("int64", "gradients or weights with sizes"),
    "median": Column("float64", "over names, of the largest difference of a name", "units in the last place"),
    "largest": Column("float64", "over names", "units in the last place"),
    "sample": Column("int64", "1: of all numbers; above: of one block of 64 numbers among so many"),
}  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A watched run `b` compared with `a`: rows of STATES and SIZES without the runs, and `first`: (step, module, pass,
    record) of the first difference, None without one."""

    comparison: Comparison
    states: pd.DataFrame
    sizes: pd.DataFrame
    first: tuple[int, str, str, str] | None

    def modules(self, states: pd.DataFrame) -> int:
        """The number of modules in rows of `states`, without the input and the loss."""
        return len({*states["module"]} - {INPUT, LAST})

    @property
    def of_sample(self) -> str:
        """` (of a sample: ...)` for words about sizes; empty if they are of all numbers."""
        sample = int(self.sizes["sample"].max()) if len(self.sizes) else 1
        return f" (of a sample: {sampled(sample)})" if sample > 1 else ""

    @property
    def names(self) -> tuple[str, str]:
        """The labels of the run and of its reference."""
        return label(self.comparison.b), label(self.comparison.a)


def watched_runs(frames: Frames) -> list[list[Id]]:
    """The complete runs with a watched model, by program and problem."""
    found = [
        (row.app, row.problem, (str(row.run), int(row.repeat)))
        for row in frames.runs.itertuples(index=False)
        if row.complete and is_watched(frames, (str(row.run), int(row.repeat)))
    ]
    groups: dict[tuple[str, str], list[Id]] = {}
    for app, problem, run in found:
        groups.setdefault((app, problem), []).append(run)
    return list(groups.values())


def is_watched(frames: Frames, run: Id) -> bool:
    """Whether `run` recorded passes of a model."""
    return any(name.startswith((OUTPUT, GRADIENT, UPDATE)) for name in frames.recorded("fingerprints", *run))


def pair(frames: Frames, a: Id, b: Id) -> Pair | None:
    """The comparison of two watched runs; None if they have no record in common."""
    try:
        comparison = compare(frames, a, b)
    except NothingInCommon:
        return None
    rows = by_step(frames, a, b)
    rows = rows[rows["name"].str.startswith((*WATCHED, WEIGHTS))]
    rows = rows.assign(name=rows["name"].str.removesuffix(" by rank"))
    labels = modules_of(rows["name"])
    places = [place_of(name, labels) for name in rows["name"]]
    rows = rows.assign(module=[module for module, _ in places], **{"pass": [of for _, of in places]})
    first = None
    at = comparison.first
    if at is not None and at.name.startswith((*WATCHED, WEIGHTS)):
        name = at.name.removesuffix(" by rank")
        first = (at.step, *place_of(name, labels), name)
    states = (
        rows.groupby(["module", "pass", "step"], sort=False)[["elements", "differing"]].sum().reset_index()
    )
    states = states.rename(columns={"elements": "records"})
    own = zip(states["step"], states["module"], states["pass"], states["differing"], strict=True)
    states["state"] = [
        EQUAL if not differing else FIRST if first and (step, module, of) == first[:3] else DIFFERS
        for step, module, of, differing in own
    ]
    order = {module: i for i, module in enumerate([INPUT, *labels.values(), LAST])}
    states = states.sort_values(
        "module", key=lambda names: names.map(order), kind="stable", ignore_index=True
    )
    return Pair(comparison, states, _sizes(frames, a, b), first)


def modules_of(names: Iterable[str]) -> dict[str, str]:
    """{path: `PATH (CLASS)`} of the modules in the order of computation; then those of parameters without an output."""
    labels: dict[str, str] = {}
    names = list(dict.fromkeys(names))
    for name in names:
        prefix = next(each for each in PASS_OF if name.startswith(each))
        if prefix in (GIVEN, OUTPUT) and (match := MODULE.match(name.removeprefix(prefix))):
            labels.setdefault(match[0].rpartition(" (")[0], match[0])
    for name in names:
        prefix = next(each for each in PASS_OF if name.startswith(each))
        if prefix in (GRADIENT, UPDATE, WEIGHTS, BEFORE):
            path = _owner(name.removeprefix(prefix))
            labels.setdefault(path, path)
    return labels


def place_of(name: str, labels: dict[str, str]) -> tuple[str, str]:
    """(module, pass) of a record."""
    prefix = next(each for each in PASS_OF if name.startswith(each))
    rest = name.removeprefix(prefix)
    if prefix in (RANDOM, DATA):
        return INPUT, FORWARD
    if prefix == LOSS:
        return LAST, FORWARD
    if prefix in (GIVEN, OUTPUT, OUTPUT_GRADIENT):
        match = MODULE.match(rest)
        return (match[0] if match else rest), PASS_OF[prefix]
    path = _owner(rest)
    return labels.get(path, path), PASS_OF[prefix]


def _owner(parameter: str) -> str:
    """The path of the module of a parameter; `model` for a parameter of the model itself."""
    return parameter.partition(",")[0].rpartition(".")[0] or "model"


def _sizes(frames: Frames, a: Id, b: Id) -> pd.DataFrame:
    """SIZES without the runs."""
    both = sized_differences(frames, a, b, common_of(frames, a, b))
    parts = []
    for what, prefixes in SIZED.items():
        own = both[both["name"].str.startswith(prefixes) & np.isfinite(both["units"])]
        by_name = own.groupby(["step", "name"], sort=False).agg({"units": "max", "sample": "max"})
        found = (
            by_name.groupby("step").agg({"units": ["size", "median", "max"], "sample": "max"}).reset_index()
        )
        parts.append(
            found.set_axis(["step", "names", "median", "largest", "sample"], axis=1).assign(what=what)
        )
    return pd.concat(parts, ignore_index=True)


def gathered(pairs: Sequence[Pair], of: str, columns: dict[str, Column]) -> pd.DataFrame:
    """The frames `of` ("states", "sizes") of all pairs, with their runs."""
    parts = [
        getattr(each, of).assign(run=each.names[0], against=each.names[1])[list(columns)] for each in pairs
    ]
    return frame(pd.concat(parts, ignore_index=True) if parts else [], columns)


def firsts(pairs: Sequence[Pair]) -> pd.DataFrame:
    """FIRSTS of all pairs."""
    rows = []
    for each in pairs:
        step, module, of, name = each.first or (-1, "", "", "")
        differing = each.modules(each.states[each.states["differing"] > 0])
        rows.append((*each.names, step, module, of, name, each.modules(each.states), differing))
    return frame(rows, FIRSTS)


def chosen_steps(steps: pd.Series, most: int, own: int) -> set[int]:
    """At most about `most` of the `steps`, evenly chosen, with the first, the last and `own`."""
    known = sorted(steps.unique().tolist())
    last = max(1, min(most, len(known)) - 1)
    return {own} | {known[round(i * (len(known) - 1) / last)] for i in range(min(most, len(known)))}
