"""Sentences and tables on trainings, for the terminal and for the report."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.page.sections import Shown, Table, lines_of
from analysis.page.text import below, interval, number
from analysis.studies.learning.apart import apart
from analysis.studies.learning.decisions import decisions, summary
from analysis.studies.learning.outputs import DRAWN, outputs
from analysis.studies.learning.paired import DIFFERS, UNSEEN
from analysis.studies.learning.prices import BEST, END, comparisons, named, prices
from analysis.studies.learning.runs import Trainings
from analysis.studies.learning.split import split
from analysis.verdict import counted


@dataclass(frozen=True)
class Known:
    """All results on the trainings: `recorded` (the frames), `prices`, `comparisons`, `decisions` and their `summary`,
    `variance`, `apart` (differences of weights between runs that differ in one factor), `outputs` (by orders of
    training and of inference), and `notes`: sentences on the limits of these results."""

    recorded: Trainings
    prices: pd.DataFrame
    comparisons: pd.DataFrame
    decisions: pd.DataFrame
    summary: pd.DataFrame
    variance: pd.DataFrame
    apart: pd.DataFrame
    outputs: pd.DataFrame
    notes: list[str]


def known_of(recorded: Trainings) -> Known:
    """All results on the `recorded` trainings; there must be at least one."""
    decided = decisions(recorded)
    known = Known(
        recorded, prices(recorded), comparisons(recorded), decided, summary(decided), split(recorded),
        apart(recorded), outputs(recorded), [],
    )  # fmt: skip
    return replace(known, notes=_notes(known))


def _notes(known: Known) -> list[str]:
    runs = known.recorded.runs
    notes = []
    if incomplete := int((~runs["complete"]).sum()):
        notes.append(f"{counted(incomplete, 'run')} left out: ended early")
    if runs["emulated"].any():
        notes.append("times of runs with emulated links are those of the emulated links, not of this machine")
    if runs["seconds"].isna().any() or (runs["seconds"] == 0).any():
        notes.append("some runs recorded no times (--trace off)")
    if len(known.comparisons[["family", "line"]].drop_duplicates()) > 1:
        notes.append("each interval alone is at 95 %: of 20 equal wires, one appears to differ")
    if (known.comparisons["basis"] == BEST).any():
        notes.append(
            "the compared accuracies also choose the best rate, which slightly favours wires with more rates"
        )
    if (known.outputs[["training", "inference"]] == DRAWN).to_numpy().any():
        notes.append(
            f"orders of arrival were drawn from seeds ({DRAWN}): their effects are real, but not how often they would "
            "occur on a device"
        )
    if (known.prices["edge"] & known.prices["rate"].notna()).any():
        notes.append("a best rate at the edge of the tried rates may not be the best")
    return notes


def all_tables(known: Known) -> list[tuple[str, Table]]:
    """Every table, in reading order."""
    return [
        *price_tables(known), *comparison_tables(known), *decision_tables(known), *variance_tables(known),
        *apart_tables(known), *output_tables(known),
    ]  # fmt: skip


def sentences(known: Known) -> list[str]:
    """A sentence on each line, at the most common rate and at its best rate."""
    ends = known.comparisons[known.comparisons["measure"] == END]
    several = known.prices["family"].nunique() > 1
    lines = []
    for family, same in ends.groupby("family", sort=False):
        first = same["basis"].iloc[0]
        for row in same[same["basis"].isin([first, BEST])].itertuples(index=False):
            if row.basis == BEST and first == named(row.rate) == named(row.against_rate):
                continue  # both have their best rate at the most common one
            where = f"{family}: " if several else ""
            lines.append(f"{where}{row.line} against {row.against}, {_rates(row)}: {clause(row)}.")
    return lines


def clause(row) -> str:
    """A row of `comparisons` in words: the difference seen, or the detectable difference."""
    seeds = counted(row.pairs, "seed")
    if row.verdict == DIFFERS:
        way = "higher" if row.difference > 0 else "lower"
        size = points(abs(row.difference))
        ends = sorted((abs(row.difference_low), abs(row.difference_high)))
        return f"accuracy {way} by {size} points ({points(ends[0])} to {points(ends[1])}, {seeds})"
    if row.verdict == UNSEEN:
        between = f"{points(row.difference_low, True)} to {points(row.difference_high, True)}"
        text = f"no difference of accuracy seen ({between} points, {seeds})"
        known = row.least == row.least
        return text + (f"; {points(row.least)} points are detectable with power 80 %" if known else "")
    return f"{seeds} in common, too few for a verdict"


def price_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table) per family: the price and the accuracy of each wire, without columns that no run recorded."""
    quality = {"error": "wire_error", "cosine": "wire_cosine", "length": "wire_length"}
    tables = []
    for family, same in known.prices.groupby("family", sort=False):
        measured = [
            Shown(name, lambda row, column=column: number(getattr(row, column)), number=True)
            for name, column in quality.items()
            if same[column].notna().any()
        ]
        columns = (
            Shown("wire", lambda row: row.line),
            Shown("rate", lambda row: number(row.rate) + (" (best)" if row.best and row.rate == row.rate else ""),
                  number=True),
            Shown("seeds", lambda row: f"{row.seeds}" + (f" in {row.runs} runs" if row.runs != row.seeds else ""),
                  number=True),
            Shown("B per step", lambda row: number(row.bytes), number=True),
            Shown("bytes ratio", lambda row: ratio(row.bytes_ratio), number=True),
            Shown("s per step", lambda row: number(row.seconds_per_step), number=True),
            Shown("time ratio", lambda row: ratio(row.seconds_ratio), number=True),
            *measured,
            Shown("accuracy, %", lambda row: points(row.accuracy), number=True),
            Shown("all runs, %", lambda row: interval(row.accuracy_least, row.accuracy_most, points), number=True),
            Shown("in equal time, %", lambda row: points(row.in_time), number=True),
            Shown("loss", lambda row: number(row.loss), number=True),
        )  # fmt: skip
        tables.append((f"Prices of wires{_of(family)}", lines_of(same, columns)))
    return tables


COMPARED = (
    Shown("wire", lambda row: row.line),
    Shown("against", lambda row: row.against),
    Shown("rates", lambda row: _rates(row)),
    Shown("seeds", lambda row: row.pairs, number=True),
    Shown("difference, points", lambda row: points(row.difference, True), number=True),
    Shown(
        "95 % interval", lambda row: interval(row.difference_low, row.difference_high, signed), number=True
    ),
    Shown("would be seen", lambda row: points(row.least), number=True),
    Shown("verdict", lambda row: row.verdict),
)


def comparison_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table) per family and measure: accuracies against the reference, paired by seeds."""
    return [
        (f"Accuracy compared {measure}{_of(family)}", lines_of(same, COMPARED))
        for (family, measure), same in known.comparisons.groupby(["family", "measure"], sort=False)
    ]


DECIDED = (
    Shown("runs", lambda row: row.runs, number=True),
    Shown("decisions", lambda row: row.decisions, number=True),
    Shown("trials", lambda row: row.trials, number=True),
    Shown("chosen", lambda row: row.choices),
    Shown("loss fell", lambda row: f"{row.gained} of {row.known}", number=True),
    Shown("trial and outcome agree", lambda row: number(row.correlation), number=True),
    Shown("error of the curve", lambda row: number(row.curve_error), number=True),
)


def decision_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table): the decisions of each line and their outcomes."""
    if known.summary.empty:
        return []
    several = known.summary["family"].nunique() > 1
    policy = Shown("policy", lambda row: row.line + (f", {row.family}" if several else ""))
    return [("Choices of wires, predicted and real", lines_of(known.summary, (policy, *DECIDED)))]


VARIANCE = (
    Shown("between", lambda row: row.words or "all"),
    Shown("levels", lambda row: number(row.levels) if row.levels else "", number=True),
    Shown("df", lambda row: number(row.df) if row.levels else "", number=True),
    Shown("sd, points", lambda row: points(np.sqrt(row.variance)), number=True),
    Shown("95 % interval", lambda row: interval(np.sqrt(row.variance_low), np.sqrt(row.variance_high), points),
          number=True),
    Shown("share of all", lambda row: "" if row.share != row.share else f"{100 * row.share:.0f} %", number=True),
    Shown("remark", lambda row: row.remark),
)  # fmt: skip


def variance_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table) per family and rate: the components of the variance of the accuracy."""
    tables = []
    for (family, rate), same in known.variance.groupby(["family", "rate"], sort=False, dropna=False):
        title = f"Variance of the accuracy, {named(rate)}{_of(family)}; {same['observations'].iloc[0]} runs"
        tables.append((title, lines_of(same, VARIANCE)))
    return tables


WEIGHTS = (
    Shown("differ in", lambda row: row.factor),
    Shown("pairs", lambda row: row.pairs, number=True),
    Shown("after step", lambda row: row.step, number=True),
    Shown("V_ermv", lambda row: number(row.v_ermv), number=True),
    Shown("range", lambda row: interval(row.v_ermv_least, row.v_ermv_most), number=True),
    Shown("V_c", lambda row: number(row.v_c), number=True),
)


def apart_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table) per family: final differences of weights, by the factor in which the runs differ."""
    tables = []
    for family, same in known.apart.groupby("family", sort=False):
        last = same.sort_values("step", kind="stable").groupby("factor", sort=False).tail(1)
        tables.append((f"Weights of runs that differ in one factor{_of(family)}", lines_of(last, WEIGHTS)))
    return tables


OF_ORDERS = (
    Shown("training", lambda row: _order(row.training, row.training_fixed)),
    Shown("inference", lambda row: _order(row.inference, row.inference_fixed)),
    Shown("of", lambda row: row.what),
    Shown("runs", lambda row: f"{row.runs}" + (f" in {row.settings} settings" if row.settings > 1 else ""),
          number=True),
    Shown("distinct", lambda row: row.distinct, number=True),
    Shown("V_ermv", lambda row: number(row.v_ermv), number=True),
    Shown("range", lambda row: interval(row.v_ermv_least, row.v_ermv_most), number=True),
    Shown("V_c", lambda row: number(row.v_c), number=True),
    Shown("p of a difference", lambda row: below(row.bound), number=True),
    Shown("to deterministic", lambda row: row.reference),
    Shown("V_ermv to it", lambda row: number(row.reference_v_ermv), number=True),
    Shown("V_c to it", lambda row: number(row.reference_v_c), number=True),
)  # fmt: skip


def output_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table) per family: variation of weights and outputs, by the orders of training and of inference."""
    return [
        (f"Training and inference, deterministic (D) or not (ND){_of(family)}", lines_of(same, OF_ORDERS))
        for family, same in known.outputs.groupby("family", sort=False)
    ]


def _order(name: str, fixed: bool) -> str:
    """`D, sorted`, `ND, emulated`."""
    return f"{'D' if fixed else 'ND'}, {name}"


def points(x: float, sign: bool = False) -> str:
    """A fraction as percentage points with two decimals; empty for NaN."""
    return "" if x != x else f"{100 * x:+.2f}" if sign else f"{100 * x:.2f}"


def signed(x: float) -> str:
    """A difference of fractions as percentage points with its sign."""
    return points(x, True)


def ratio(x: float) -> str:
    """`0.26`; empty for NaN."""
    return "" if x != x else f"{x:.2f}"


def _rates(row) -> str:
    """`rate 0.05`, or `best rates 0.05 and 0.02`."""
    if row.basis != BEST:
        return row.basis
    return f"best rates {row.rate:g} and {row.against_rate:g}"


def _of(family: str) -> str:
    return f": {family}" if family else ""
