"""What is known of the trainings in words and as tables, for the terminal and for the report."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.page.sections import Table
from analysis.page.text import below, interval, number
from analysis.training import poster
from analysis.training.apart import apart
from analysis.training.decisions import decisions, summary
from analysis.training.frames import Trainings
from analysis.training.outputs import DRAWN, outputs
from analysis.training.paired import DIFFERS, UNSEEN
from analysis.training.poster import claims
from analysis.training.prices import BEST, END, bases, comparisons, measured, named, prices
from analysis.training.split import split
from analysis.verdict import counted


@dataclass(frozen=True)
class Study:
    """All that is computed of the trainings: `recorded` (the frames), `prices`, `comparisons`, `decisions` and their
    `summary`, `variance`, `apart` (weights of runs that differ in one thing), `outputs` (by orders of training and of
    inference), `poster`, and `notes`, sentences on what limits them."""

    recorded: Trainings
    prices: pd.DataFrame
    comparisons: pd.DataFrame
    decisions: pd.DataFrame
    summary: pd.DataFrame
    variance: pd.DataFrame
    apart: pd.DataFrame
    outputs: pd.DataFrame
    poster: pd.DataFrame
    notes: list[str]


def study(known: Trainings) -> Study:
    """Everything about `known`, which must not be empty."""
    runs = known.runs
    wires = {(row.family, row.line): row.wire for row in runs.itertuples(index=False)}
    decided = decisions(known)
    results = Study(
        known, prices(known), comparisons(known), decided, summary(decided), split(known),
        apart(known), outputs(known),
        claims([b for b in bases(measured(known)) if b.first or b.name == BEST], wires), [],
    )  # fmt: skip
    if incomplete := int((~runs["complete"]).sum()):
        results.notes.append(f"{counted(incomplete, 'run')} ended early and count nowhere")
    if runs["emulated"].any():
        results.notes.append("times of runs with emulated links are those of the links that were given, not of this "
                             "machine")  # fmt: skip
    if runs["seconds"].isna().any() or (runs["seconds"] == 0).any():
        results.notes.append("some runs recorded no times (--trace off)")
    tested = results.comparisons
    if len(tested[["family", "line"]].drop_duplicates()) > 1:
        results.notes.append(
            "each interval is at 95 % by itself: of 20 wires that are as good, one is seen to differ"
        )
    if (tested["basis"] == BEST).any():
        results.notes.append("the best rate is chosen by the accuracies that are then compared, which is a little too "
                             "kind to wires with more rates")  # fmt: skip
    if (results.outputs[["training", "inference"]] == DRAWN).to_numpy().any():
        results.notes.append(f"orders of arrival were drawn from seeds ({DRAWN}), not met: what they do is real, how "
                             "often a device would do it is not known from them")  # fmt: skip
    if (results.prices["edge"] & results.prices["rate"].notna()).any():
        results.notes.append("a best rate at the edge of those that were tried may not be the best")
    return results


def exported(results: Study) -> dict[str, pd.DataFrame]:
    """The frames of `results` that are written as CSV, by name."""
    return {
        "trainings": results.recorded.runs, "curves": results.recorded.curves, "prices": results.prices,
        "comparisons": results.comparisons, "decisions": results.decisions, "decided": results.summary,
        "variance": results.variance, "apart": results.apart, "outputs": results.outputs,
        "poster": results.poster,
    }  # fmt: skip


def all_tables(results: Study) -> list[tuple[str, Table]]:
    """Every table, in the order in which they are read."""
    return [
        *price_tables(results), *comparison_tables(results), *decision_tables(results), *variance_tables(results),
        *apart_tables(results), *output_tables(results), *poster_tables(results),
    ]  # fmt: skip


def sentences(results: Study) -> list[str]:
    """What there is to say of each line at the rate at which most ran, and each at its best."""
    ends = results.comparisons[results.comparisons["measure"] == END]
    several = results.prices["family"].nunique() > 1
    lines = []
    for family, same in ends.groupby("family", sort=False):
        first = same["basis"].iloc[0]
        for row in same[same["basis"].isin([first, BEST])].itertuples(index=False):
            if row.basis == BEST and first == named(row.rate) == named(row.against_rate):
                continue  # the best rate of both is the one at which most ran
            where = f"{family}: " if several else ""
            lines.append(f"{where}{row.line} against {row.against}, {_rates(row)}: {said(row)}.")
    return lines


def said(row) -> str:
    """What a row of `comparisons` says: whether a difference is seen, and which one would have been."""
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
        return text + (f"; {points(row.least)} points would have been, with power 80 %" if known else "")
    return f"{seeds} that both have, which is too few to tell"


def price_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table) per family: what each wire costs and how accurate it is. Columns of what no run recorded are left
    out."""
    quality = {"error": "wire_error", "cosine": "wire_cosine", "length": "wire_length"}
    tables = []
    for family, same in results.prices.groupby("family", sort=False):
        shown = {name: column for name, column in quality.items() if same[column].notna().any()}
        columns = ("wire", "rate", "seeds", "B per step", "bytes ratio", "s per step", "time ratio", *shown,
                   "accuracy, %", "all runs, %", "in equal time, %", "loss")  # fmt: skip
        rows = [
            (
                row.line, number(row.rate) + (" (best)" if row.best and row.rate == row.rate else ""),
                f"{row.seeds}" + (f" in {row.runs} runs" if row.runs != row.seeds else ""), number(row.bytes),
                ratio(row.bytes_ratio), number(row.seconds_per_step), ratio(row.seconds_ratio),
                *(number(getattr(row, column)) for column in shown.values()), points(row.accuracy),
                interval(row.accuracy_least, row.accuracy_most, points), points(row.in_time), number(row.loss),
            )
            for row in same.itertuples(index=False)
        ]  # fmt: skip
        tables.append((f"Prices of wires{_of(family)}", Table(columns, rows, columns[1:])))
    return tables


def comparison_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table) per family and measure: accuracies against the reference, paired by seeds."""
    columns = ("wire", "against", "rates", "seeds", "difference, points", "95 % interval", "would be seen",
               "verdict")  # fmt: skip
    tables = []
    for (family, measure), same in results.comparisons.groupby(["family", "measure"], sort=False):
        rows = [
            (
                row.line, row.against, _rates(row), row.pairs, points(row.difference, True),
                interval(row.difference_low, row.difference_high, lambda x: points(x, True)), points(row.least),
                row.verdict,
            )
            for row in same.itertuples(index=False)
        ]  # fmt: skip
        tables.append((f"Accuracy compared {measure}{_of(family)}", Table(columns, rows, columns[3:7])))
    return tables


def decision_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table): what became of the decisions of each line."""
    if results.summary.empty:
        return []
    columns = ("policy", "runs", "decisions", "trials", "chosen", "loss fell", "trial and outcome agree",
               "error of the curve")  # fmt: skip
    several = results.summary["family"].nunique() > 1
    rows = [
        (
            row.line + (f", {row.family}" if several else ""), row.runs, row.decisions, row.trials, row.choices,
            f"{row.gained} of {row.known}", number(row.correlation), number(row.curve_error),
        )
        for row in results.summary.itertuples(index=False)
    ]  # fmt: skip
    numbers = (*columns[1:4], *columns[5:])
    return [("Decisions about wires, predicted and real", Table(columns, rows, numbers))]


def variance_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table) per family and rate: how the variance of the accuracy divides."""
    tables = []
    for (family, rate), same in results.variance.groupby(["family", "rate"], sort=False, dropna=False):
        rows = [
            (
                row.words or "all", number(row.levels) if row.levels else "", number(row.df) if row.levels else "",
                points(np.sqrt(row.variance)),
                interval(np.sqrt(row.variance_low), np.sqrt(row.variance_high), points),
                "" if row.share != row.share else f"{100 * row.share:.0f} %", row.remark,
            )
            for row in same.itertuples(index=False)
        ]  # fmt: skip
        columns = ("between", "levels", "df", "sd, points", "95 % interval", "share of all", "remark")
        title = f"Variance of the accuracy, {named(rate)}{_of(family)}; {same['observations'].iloc[0]} runs"
        tables.append((title, Table(columns, rows, columns[1:6])))
    return tables


def apart_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table) per family: how far weights lie apart at the end, by what differs between the runs."""
    columns = ("differ in", "pairs", "after step", "V_ermv", "range", "V_c")
    tables = []
    for family, same in results.apart.groupby("family", sort=False):
        last = same.sort_values("step", kind="stable").groupby("factor", sort=False).tail(1)
        rows = [
            (
                row.factor, row.pairs, row.step, number(row.v_ermv), interval(row.v_ermv_least, row.v_ermv_most),
                number(row.v_c),
            )
            for row in last.itertuples(index=False)
        ]  # fmt: skip
        tables.append(
            (f"Weights of runs that differ in one thing{_of(family)}", Table(columns, rows, columns[1:]))
        )
    return tables


def output_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table) per family: how weights and outputs vary, by the orders of training and of inference."""
    columns = ("training", "inference", "of", "runs", "distinct", "V_ermv", "range", "V_c", "p of a difference",
               "to deterministic", "V_ermv to it", "V_c to it")  # fmt: skip
    tables = []
    for family, same in results.outputs.groupby("family", sort=False):
        rows = [
            (
                _order(row.training, row.training_fixed), _order(row.inference, row.inference_fixed), row.what,
                f"{row.runs}" + (f" in {row.settings} settings" if row.settings > 1 else ""), row.distinct,
                number(row.v_ermv), interval(row.v_ermv_least, row.v_ermv_most), number(row.v_c), below(row.bound),
                row.reference, number(row.reference_v_ermv), number(row.reference_v_c),
            )
            for row in same.itertuples(index=False)
        ]  # fmt: skip
        title = f"Training and inference, deterministic (D) or not (ND){_of(family)}"
        tables.append((title, Table(columns, rows, (*columns[3:9], *columns[10:]))))
    return tables


def _order(name: str, fixed: bool) -> str:
    """`D, sorted`, `ND, emulated`."""
    return f"{'D' if fixed else 'ND'}, {name}"


def poster_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table) per family: the published claims on each basis."""
    columns = ("claim", "compared", "published", "ours, %", "difference, points", "95 % interval", "seeds",
               "verdict", "why")  # fmt: skip
    tables = []
    for family, same in results.poster.groupby("family", sort=False):
        rows = [
            (
                row.claim, ", ".join(filter(None, [row.basis, row.measure])),
                f"{points(row.published)} and {points(row.published_against)}",
                " and ".join(points(x) or "-" for x in (row.accuracy, row.accuracy_against)),
                points(row.difference, True),
                interval(row.difference_low, row.difference_high, lambda x: points(x, True)), row.pairs, row.verdict,
                row.why,
            )
            for row in same.itertuples(index=False)
        ]  # fmt: skip
        tables.append((f"Claims of the poster{_of(family)}", Table(columns, rows, columns[2:7])))
    return tables


def verdicts(results: Study) -> str:
    """How many of the published claims hold on any basis, as a sentence; empty where none was compared."""
    if results.poster.empty:
        return ""
    count = results.poster["verdict"].value_counts()
    parts = [f"{count.get(name, 0)} {name}" for name in (poster.HOLDS, poster.DOES_NOT, poster.UNTOLD)]
    return f"Of {len(results.poster)} comparisons with published claims: {', '.join(parts)}."


def points(x: float, signed: bool = False) -> str:
    """A fraction as percentage points, two digits behind the point; empty where there is none."""
    return "" if x != x else f"{100 * x:+.2f}" if signed else f"{100 * x:.2f}"


def ratio(x: float) -> str:
    """`0.26`; empty where there is none."""
    return "" if x != x else f"{x:.2f}"


def _rates(row) -> str:
    """`rate 0.05`, or `best rates 0.05 and 0.02`."""
    if row.basis != BEST:
        return row.basis
    return f"best rates {row.rate:g} and {row.against_rate:g}"


def _of(family: str) -> str:
    return f": {family}" if family else ""
