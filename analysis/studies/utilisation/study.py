"""The study of utilisation."""

from __future__ import annotations

import argparse

from analysis.overview import Overview
from analysis.page.sections import Section, Shown, Table, folded, table_of
from analysis.page.text import interval, number
from analysis.studies.contract import Data, Nothing, Study
from analysis.studies.utilisation.plans import figure, plans, stage_table
from analysis.studies.utilisation.runs import USED, Used, used


def read(overview: Overview, options: argparse.Namespace | None) -> Used:
    """The utilisation of all runs that recorded it."""
    known = used(overview.frames)
    if known.runs.empty:
        raise Nothing
    return known


# Columns from a case and the rows of its runs.
COLUMNS = (
    Shown("case", lambda case, own: case),
    Shown("runs", lambda case, own: len(own), number=True),
    Shown("steps", lambda case, own: own["steps"].sum(), number=True),
    Shown("GFLOP per step", lambda case, own: number(own["flops"].median() / 1e9), number=True),
    Shown("GFLOP/s of a core", lambda case, own: number(own["rate"].median() / 1e9), number=True),
    Shown("s per step", lambda case, own: number(own["seconds"].median()), number=True),
    Shown("utilisation, %", lambda case, own: percent(own["utilisation"].median()), number=True),
    Shown(
        "all steps, %",
        lambda case, own: interval(own["least"].min(), own["most"].max(), percent),
        number=True,
    ),
    Shown("of processor time, %", lambda case, own: percent(own["of_processor_time"].median()), number=True),
)


def tables(known: Used) -> list[tuple[str, Table]]:
    """(title, table) per problem: a row per case, medians over runs."""
    return [
        (
            f"Utilisation: {family}" if family else "Utilisation",
            table_of(same.groupby("case", sort=False), COLUMNS),
        )
        for family, same in known.runs.groupby("family", sort=False)
    ]


def sentences(known: Used) -> list[str]:
    """A sentence on the best and on the worst case, or on the only one."""
    ordered = known.runs.sort_values("utilisation", ascending=False, kind="stable")
    lines = [
        f"{', '.join(filter(None, [row.family, known.words[row.case]]))}: utilisation {percent(row.utilisation)} %, "
        f"{percent(row.of_processor_time)} % of processor time."
        for row in ordered.itertuples(index=False)
    ]
    return list(dict.fromkeys([lines[0], lines[-1]]))


def percent(x: float) -> str:
    """A fraction in percent with one decimal; empty for NaN."""
    return "" if x != x else f"{100 * x:.1f}"


def sections(known: Used) -> list[Section]:
    """Utilisation by case, and the plans."""
    intro = (
        "Utilisation: the floating-point operations of a step of the unsharded model (products of matrices, "
        "convolutions, attention; forward and backward) over the capacity of the cores in the same time. The capacity "
        "is the rate of one core in products of 512 x 512 matrices before the first step, times the cores. The time is "
        "by the clock of rank 0, without recording of weights. `of processor time` uses the processor time of all "
        "ranks instead, with recording: the number to use if other processes share the machine. Medians over all steps "
        "but the first."
    )
    drawn = plans(known)
    figures = [figure(f"plan{k}", title, stages) for k, (title, stages) in enumerate(drawn.items())]
    staged = [stage_table(title, stages) for title, stages in drawn.items()]
    title, nothing = "Training over a mesh", "No run over a mesh recorded its utilisation."
    return [
        Section("utilisation", title, nothing, intro, figures, [*folded(tables(known)), *staged], opened=True)
    ]


STUDY = Study(
    read=read,
    data=(
        Data("utilisation", "a row per repeat over a mesh ([meaning](../explanation/partition.md#utilisation))",
             USED, lambda known: known.runs),
    ),
    sentences=sentences,
    tables=tables,
    sections=sections,
    words=lambda known: known.words,
)  # fmt: skip
