"""The study of decisions."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.overview import Overview
from analysis.page import svg
from analysis.page.sections import Section, Shown, Table, folded, lines_of
from analysis.page.svg import Figure, figure_of
from analysis.page.text import interval, number
from analysis.power import percent
from analysis.studies.contract import Data, Nothing, Study
from analysis.studies.decisions.compare import COMPARED, FIRST, PROBLEMS, compared, problems
from analysis.studies.decisions.runs import NOTHING, RANKS, SEVERAL, recorded
from analysis.verdict import counted

DRAWN = 16  # most rows of the figure


@dataclass(frozen=True)
class Known:
    """`rows`: by problem, decision and factor, columns COMPARED; `first`: the first of each that differs, columns
    FIRST; `over`: over all problems, columns PROBLEMS."""

    rows: pd.DataFrame
    first: pd.DataFrame
    over: pd.DataFrame


def read(overview: Overview, options: argparse.Namespace | None) -> Known:
    """The compared decisions of all runs."""
    rows, first = compared(recorded(overview.frames))
    if rows.empty:
        raise Nothing
    return Known(rows, first, problems(rows))


def share(x: float) -> str:
    """A fraction in percent."""
    return "" if x != x else percent(x)


COLUMNS = (
    Shown("problem", lambda row: ": ".join(filter(None, [row.app, row.family]))),
    Shown("decision", lambda row: row.name),
    Shown("differs in", lambda row: row.factor),
    Shown("runs", lambda row: row.runs, number=True),
    Shown("pairs", lambda row: row.pairs, number=True),
    Shown("decide differently", lambda row: row.differing, number=True),
    Shown("share", lambda row: share(row.share), number=True),
    Shown("95 % interval", lambda row: interval(row.low, row.high, share), number=True),
    Shown("decisions of a run", lambda row: row.decisions, number=True),
    Shown("of these other, mean", lambda row: share(row.changed_mean), number=True),
    Shown("most", lambda row: row.changed_most, number=True),
    Shown("margin, median", lambda row: number(row.margin), number=True),
    Shown("largest that changed", lambda row: number(row.margin_changed), number=True),
)
OVER = (
    Shown("application", lambda row: row.app),
    Shown("decision", lambda row: row.name),
    Shown("differs in", lambda row: row.factor),
    Shown("problems", lambda row: row.problems, number=True),
    Shown("decide differently", lambda row: row.differing, number=True),
    Shown("share", lambda row: share(row.share), number=True),
    Shown("95 % interval", lambda row: interval(row.low, row.high, share), number=True),
)
FIRSTS = (
    Shown("problem", lambda row: ": ".join(filter(None, [row.app, row.family]))),
    Shown("decision", lambda row: row.name),
    Shown("differs in", lambda row: row.factor),
    Shown("runs", lambda row: f"{row.a}, {row.b}"),
    Shown("step", lambda row: row.step, number=True),
    Shown("block", lambda row: "" if row.block < 0 else row.block, number=True),
    Shown("outcomes", lambda row: f"{outcome(row.outcome_a)}, {outcome(row.outcome_b)}", number=True),
    Shown(
        "margins", lambda row: ", ".join(filter(None, map(number, (row.margin_a, row.margin_b)))), number=True
    ),
)


def outcome(x: float) -> str:
    """An outcome as it was recorded; `none` where a run did not make the decision."""
    return "none" if x != x else number(x)


def tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table): over all problems if there are several, by problem, and the first decisions that differ."""
    found = [("Decisions", lines_of(known.rows, COLUMNS))]
    if known.over["problems"].max() > 1:
        found.insert(0, ("Decisions over all problems", lines_of(known.over, OVER)))
    if len(known.first):
        found.append(("The first decisions that differ", lines_of(known.first, FIRSTS)))
    return found


def verdict(known: Known) -> str:
    """A sentence on what some pair of runs decides differently."""
    some = known.over[(known.over["differing"] > 0).to_numpy()]
    if some.empty:
        return "No two of these runs decide anything differently."
    parts = [
        f"{app}: {name} ({', '.join(same['factor'])})"
        for (app, name), same in some.groupby(["app", "name"], sort=False)
    ]
    return f"Some runs decide differently, by what differs between them: {'; '.join(parts)}."


def sentences(known: Known) -> list[str]:
    """The verdict, and for each decision and factor how many pairs decide differently."""
    lines = [verdict(known)]
    for (app, name, factor), same in known.rows.groupby(["app", "name", "factor"], sort=False):
        pairs, differing = int(same["pairs"].sum()), int(same["differing"].sum())
        between = {
            NOTHING: "repeat each other", SEVERAL: "differ in several ways", RANKS: "differ in the number of ranks"
        }.get(factor, f"differ in the {factor}")  # fmt: skip
        lines.append(
            f"{app}: {name}: {counted(differing, 'pair')} of {pairs} that {between} decide{'s' * (differing == 1)} "
            f"differently ({share(differing / pairs)})."
        )
    return lines


def figures(known: Known) -> list[Figure]:
    """The share of pairs that decide differently, with intervals."""
    rows = known.rows.iloc[:DRAWN]
    labels = [
        ", ".join(filter(None, [row.family or row.app, row.name, row.factor])) for row in rows.itertuples()
    ]
    caption = (
        "The share of pairs of runs of which at least one decision differs, by what differs between the two runs. "
        "Lines are intervals at 95 %, for as many independent pairs as the runs can form."
    )
    data = rows[["app", "family", "name", "factor", "runs", "pairs", "differing", "share", "low", "high"]]
    height = 0.7 + 0.28 * len(rows)
    return [
        figure_of(
            "decisions",
            "Pairs of runs that decide differently",
            _plot(rows, labels),
            caption,
            height,
            (),
            data=data,
        )
    ]


def _plot(rows: pd.DataFrame, labels: list[str]) -> Callable:
    def plot(axes) -> None:
        places = -np.arange(len(rows))
        look = svg.series(0)
        axes.hlines(places, 100 * rows["low"], 100 * rows["high"], color=look["color"])
        axes.plot(100 * rows["share"], places, linestyle="none", **look)
        axes.set_yticks(places, labels)
        axes.set(xlabel="pairs that decide differently, %", xlim=(-3, 103))

    return plot


def sections(known: Known) -> list[Section]:
    """The share of pairs that decide differently, and the first decision of each."""
    intro = (
        f"{verdict(known)} A decision is a discrete outcome: a class, a cluster, a number of iterations, whether a "
        "solve converged. Two runs of one problem are compared decision by decision. A margin says how far a decision "
        "was from another outcome, relative to the quantities that were compared."
    )
    return [
        Section(
            "decisions", "What rounding decides", "No run recorded decisions.", intro, figures(known),
            folded(tables(known)),
        )
    ]  # fmt: skip


STUDY = Study(
    read=read,
    data=(
        Data("decided", "a row per problem, decision and factor", COMPARED, lambda known: known.rows),
        Data("first_decisions", "the first decision of each that differs", FIRST, lambda known: known.first),
        Data("problems", "a row per application, decision and factor, over all problems", PROBLEMS,
             lambda known: known.over),
    ),
    sentences=sentences,
    tables=tables,
    sections=sections,
    facts=lambda known: ["other decisions"] if (known.rows["differing"] > 0).any() else [],
)  # fmt: skip
