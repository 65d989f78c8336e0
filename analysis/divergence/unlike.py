"""Differences of two runs in methods, choices and environments that may change bits."""

from __future__ import annotations

import json

import pandas as pd

from analysis.divergence.points import Comparison
from analysis.divergence.recorded import value_text
from analysis.environment import short
from analysis.groups import FREE, IN_LABEL, LAYOUT, SPANS_LAYOUTS, differing_factors, factors
from analysis.load.frames import Frames
from analysis.runs import label
from miniapps.system.scope import NOT_SET, apart, mixed
from miniapps.trace.records import STAGES

# Effects of options that explain no difference: an injected fault is the cause that the user looks for, and a replay
# has the orders of its source.
NO_CAUSE = ("fault", "replay")
SHOWN = 4  # sentences


def unlike(frames: Frames, comparison: Comparison) -> list[str]:
    """A few sentences on different methods, choices and environments of two runs; empty if there are none."""
    runs = frames.runs.set_index(["run", "repeat"])
    a, b = runs.loc[comparison.a], runs.loc[comparison.b]
    sentences = [
        f"{key} is {x} in {label(comparison.a)}, {y} in {label(comparison.b)}"
        for key, x, y in (*methods(a, b), *choices(frames, comparison), *environments(a, b))
    ]
    return (
        sentences if len(sentences) <= SHOWN else [*sentences[:SHOWN], f"and {len(sentences) - SHOWN} more"]
    )


def methods(a: pd.Series, b: pd.Series) -> list[tuple[str, str, str]]:
    """(factor, value in a, value in b) of each factor of the method that differs and may change bits.

    Rank counts and owners are left out: the guarantees of sums cover them."""
    promised = all(run["guarantee"] in SPANS_LAYOUTS for run in (a, b))
    left_out = (*IN_LABEL, *NO_CAUSE, *(FREE if promised else LAYOUT))
    one, other = (
        {"guarantee": run["guarantee"], "ordering": run["ordering"]}
        | factors(run["method"], run["options"], left_out)
        for run in (a, b)
    )
    return [
        (key, value_text(one.get(key)), value_text(other.get(key))) for key in differing_factors([one, other])
    ]


def choices(frames: Frames, comparison: Comparison) -> list[tuple[str, str, str]]:
    """(choice, value in a, value in b) of decisions from a clock that differ, up to the first difference of bits."""
    key = ["step", "name", "block"]
    sides = [frames.of("choices", *run) for run in (comparison.a, comparison.b)]
    if any(side.empty for side in sides):
        return []
    a, b = (side[[*key, "choice"]].astype({"name": "str"}).drop_duplicates(key) for side in sides)
    both = a.merge(b, on=key, suffixes=("_a", "_b")).sort_values(["step", "block"], kind="stable")
    both = both[(both["choice_a"] != both["choice_b"]) & (both["name"] != STAGES)]
    if comparison.first is not None:
        both = both[both["step"] <= comparison.first.step]
    return [
        (f"{name}{f' of block {block}' if block >= 0 else ''} at step {step}", x, y)
        for step, name, block, x, y in both.itertuples(index=False)
    ]


def environments(a: pd.Series, b: pd.Series) -> list[tuple[str, str, str]]:
    """(entry, value in a, value in b) of each environment entry that guarantees do not cover and that differs, between
    the runs or between the ranks of one run."""
    one, other = (json.loads(run["environment"]) for run in (a, b))
    entries = {key: (key, short(x), short(y)) for key, x, y in apart(one, other, "run")}
    for key, _ in (*mixed(one, "run"), *mixed(other, "run")):
        entries.setdefault(key, (key, short(one.get(key, NOT_SET)), short(other.get(key, NOT_SET))))
    return list(entries.values())
