"""Scores of predictions in words and tables, for the terminal and for the report."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from analysis.page.sections import Shown, Table, lines_of, table_of
from analysis.page.text import interval, number
from analysis.predict.scoring.score import FLOOR_MOST, NOT_TESTABLE, Score, methods
from analysis.verdict import counted
from miniapps.untrusted.ledger import Ledger

HASH_SHOWN = 12  # characters
ROWS_SHOWN = 200  # of a ledger
MISSED = 1.0  # above this error, a factor says more than a percentage
USUAL = "wall clock"  # the kind of targets that a sentence does not name


def sentences(score: Score) -> list[str]:
    """The score of each kind of targets in one sentence, the verdict first."""
    if not len(score.summary):
        return [f"{NOT_TESTABLE}: no run was predicted before it ran"]
    return [
        _sentence(own, len(score.summary) > 1) + _from_plans(score.targets[score.targets["kind"] == own.kind])
        for own in score.summary.itertuples(index=False)
    ]


def _from_plans(targets: pd.DataFrame) -> str:
    """Of how many targets no run was behind the prediction, as the end of a sentence; empty for none."""
    alone = int((targets["sources"] == 0).sum())
    of = "" if alone == len(targets) else f" of {alone} of {counted(len(targets), 'target')}"
    return f"; no run was behind the prediction{of}" if alone else ""


def _sentence(own, several: bool) -> str:
    floor = "of unknown floor" if math.isnan(own.floor) else f"over a floor of {own.floor:.1%}"
    verdict = own.verdict
    if own.within == own.within and verdict != NOT_TESTABLE:
        verdict += f" (limit {own.within:.1%})"
    kind = f"{own.kind}, " if several or own.kind != USUAL else ""
    error = f"{own.error:.1%} geometric mean error"
    if own.error > MISSED:
        error = f"missed: runs took {own.took:.2g} times as long as predicted"
    text = (
        f"{kind}{verdict}: {error} {floor}, of {counted(own.targets, 'target')} in "
        f"{counted(own.runs, 'run')}; {own.inside} of {own.runs} within the 80 % interval"
    )
    if own.compared:
        text += f"; better than every baseline for {own.better} of {counted(own.compared, 'target')}"
    return text


def price_sentences(score: Score) -> list[str]:
    """The error of the predicted price of each guarantee, a sentence each."""
    return [
        f"price of {e.guarantee}, {e.kind}: {e.verdict}, {e.error:.1%} error "
        + ("of unknown floor" if math.isnan(e.floor) else f"over a floor of {e.floor:.1%}")
        + f", of {counted(e.targets, 'price')}"
        for e in score.price_errors.itertuples(index=False)
    ]


def all_tables(score: Score, ledger: Ledger) -> list[tuple[str, Table]]:
    """Every table, in reading order."""
    return [
        *summary_tables(score), *target_tables(score), *price_tables(score), *method_tables(score),
        *region_tables(score),
        *ledger_tables(score, ledger),
    ]  # fmt: skip


def exported(score: Score, ledger: Ledger) -> dict[str, pd.DataFrame]:
    """The frames for CSV files, by name."""
    return {
        "summary": score.summary,
        "targets": score.targets,
        "prices": score.prices,
        "price_errors": score.price_errors,
        "methods": methods(score.targets),
        "samples": score.samples,
        "regions": score.regions,
        "ledger": ledger_frame(score, ledger),
    }


def names(targets: pd.DataFrame) -> dict[int, str]:
    """{row: name of its target}: app and ranks, with problem, method or line where names would be equal."""
    base = [
        f"{t.app}, {counted(t.ranks, 'rank')}"
        + f" ({t.mesh})" * bool(t.mesh)
        + ", CPU time" * (t.clock == "cpu")
        for t in targets.itertuples(index=False)
    ]
    words = {}
    for name, target in zip(base, targets.itertuples(index=False), strict=True):
        alike = targets[[other == name for other in base]]
        parts = [name]
        parts += [f"problem {target.problem[:6]}"] if alike["problem"].nunique() > 1 else []
        parts += method_words(target, alike)
        same = alike[(alike["problem"] == target.problem) & (alike["method"] == target.method)]
        parts += [f"line {target.row}"] if len(same) > 1 else []
        words[target.row] = ", ".join(parts)
    return words


def method_words(target: Any, beside: pd.DataFrame) -> list[str]:
    """The words that distinguish a target's method among the targets `beside`, which include it: its guarantee, and the
    method's hash if others have that guarantee, too. Empty for a single method."""
    methods = beside[["method", "guarantee"]].drop_duplicates("method")
    if len(methods) < 2:
        return []
    words = [target.guarantee] if target.guarantee else []
    alike = int((methods["guarantee"] == target.guarantee).sum())
    return words + ([f"method {target.method[:6]}"] if alike > 1 or not words else [])


# Columns from the name of a target and its row.
TARGET = (
    Shown("line", lambda name, row: row.row, number=True),
    Shown("target", lambda name, row: name),
    Shown("runs", lambda name, row: row.runs, number=True),
    Shown("predicted, ms per step", lambda name, row: number(1e3 * row.median_s), number=True),
    Shown("80 % interval", lambda name, row: interval(1e3 * row.low_s, 1e3 * row.high_s), number=True),
    Shown("measured", lambda name, row: number(1e3 * row.measured_s), number=True),
    Shown("error", lambda name, row: f"{row.error:.1%}", number=True),
    Shown("floor", lambda name, row: _percent(row.floor, FLOOR_MOST), number=True),
    Shown("bias", lambda name, row: f"{row.bias:+.1%}", number=True),
    Shown("within", lambda name, row: f"{row.inside} of {row.runs}"),
    Shown("extrapolated", lambda name, row: row.extrapolated),
)


def target_tables(score: Score) -> list[tuple[str, Table]]:
    """Predicted and measured times of every target, its error beside its floor."""
    known = names(score.targets)
    rows = [(known[row.row], row) for row in score.targets.itertuples(index=False)]
    return [("Predicted and measured", table_of(rows, TARGET))] if rows else []


PRICE_ERRORS = (
    Shown("guarantee", lambda row: row.guarantee),
    Shown("", lambda row: row.kind),
    Shown("prices", lambda row: row.targets, number=True),
    Shown("error", lambda row: f"{row.error:.1%}", number=True),
    Shown("floor", lambda row: _percent(row.floor, FLOOR_MOST), number=True),
    Shown("verdict", lambda row: row.verdict),
)
# Columns from the name of a target and the row of its price.
PRICES = (
    Shown("guarantee", lambda name, row: row.guarantee),
    Shown("against", lambda name, row: row.weakest),
    Shown("target", lambda name, row: name),
    Shown("predicted", lambda name, row: f"x {number(row.predicted)}", number=True),
    Shown("measured", lambda name, row: f"x {number(row.measured)}", number=True),
    Shown("error", lambda name, row: f"{row.error:.1%}", number=True),
    Shown("floor", lambda name, row: _percent(row.floor, FLOOR_MOST), number=True),
)


def price_tables(score: Score) -> list[tuple[str, Table]]:
    """Predicted and measured prices of guarantees, beside their floors."""
    known = names(score.targets)
    rows = [(known[row.row], row) for row in score.prices.itertuples(index=False)]
    if not rows:
        return []
    return [
        ("Price of each guarantee", lines_of(score.price_errors, PRICE_ERRORS)),
        ("Prices, predicted and measured", table_of(rows, PRICES)),
    ]


METHOD = (
    Shown("predicted by", lambda row: row.method),
    Shown("targets", lambda row: row.targets, number=True),
    Shown("error", lambda row: _percent(row.error), number=True),
    Shown("error of the prediction there", lambda row: _percent(row.prediction_error), number=True),
    Shown("prediction better for", lambda row: "" if row.method == "prediction" else f"{row.better} of {row.targets}",
          number=True),
)  # fmt: skip


def method_tables(score: Score) -> list[tuple[str, Table]]:
    """The prediction beside the baselines."""
    return [
        (f"Beside simple predictions: {kind}", lines_of(own, METHOD))
        for kind, own in methods(score.targets).groupby("kind")
    ]


SUMMARY = (
    Shown("", lambda row: row.kind),
    Shown("targets", lambda row: row.targets, number=True),
    Shown("runs", lambda row: row.runs, number=True),
    Shown("error", lambda row: f"{row.error:.1%}", number=True),
    Shown("floor", lambda row: _percent(row.floor, FLOOR_MOST), number=True),
    Shown("within the 80 % interval", lambda row: f"{row.coverage:.0%} ({_between(row)})", number=True),
    Shown("CRPS over measured", lambda row: f"{row.crps:.1%}", number=True),
    Shown("verdict", lambda row: row.verdict),
)


def _between(row: Any) -> str:
    return interval(row.coverage_low, row.coverage_high, "{:.0%}".format)


def summary_tables(score: Score) -> list[tuple[str, Table]]:
    """The score in numbers, a row per kind of targets."""
    return [("Score", lines_of(score.summary, SUMMARY))] if len(score.summary) else []


# Columns from the name of a target and the row of its region.
REGION = (
    Shown("target", lambda name, row: name),
    Shown("region", lambda name, row: row.name),
    Shown("predicted, ms per step", lambda name, row: number(1e3 * row.predicted_s), number=True),
    Shown("measured", lambda name, row: number(1e3 * row.measured_s), number=True),
    Shown("ratio", lambda name, row: number(row.ratio), number=True),
)


PART = (REGION[0], Shown("part", lambda name, row: row.name), REGION[2])


def region_tables(score: Score) -> list[tuple[str, Table]]:
    """The five regions of each target whose predicted and measured seconds differ most; and the parts of predictions
    that no run was behind, since a trace has no regions of their names."""
    known = names(score.targets)
    off = score.regions[score.regions["measured_s"].notna()]
    off = off.assign(apart=(off["measured_s"] - off["predicted_s"]).abs())
    rows = [
        (known[target], region)
        for target, own in off.groupby("row", sort=False)
        for region in own.nlargest(5, "apart").itertuples(index=False)
    ]
    planned = score.targets.loc[score.targets["sources"] == 0, "row"]
    alone = score.regions[score.regions["measured_s"].isna() & score.regions["row"].isin(planned)]
    longest = alone.sort_values(["row", "predicted_s"], ascending=[True, False])
    parts = [(known[each.row], each) for each in longest.itertuples(index=False)]
    return [
        *([("Regions that differ most", table_of(rows, REGION))] if rows else []),
        *([("Predicted parts, which the runs do not measure", table_of(parts, PART))] if parts else []),
    ]


def ledger_frame(score: Score, ledger: Ledger) -> pd.DataFrame:
    """A row per row of the ledger: `line`, `time`, `hash`, `before`, its prediction, and its number of `runs`."""
    runs = dict(zip(score.targets["row"], score.targets["runs"], strict=True))
    rows = [
        (
            row.number, row.time, row.hash, row.before, p.app, p.problem, p.method, p.ranks, p.mesh, p.clock, p.median,
            *p.interval, p.model, p.calibration, ", ".join(p.extrapolated), "; ".join(p.remarks),
            runs.get(row.number, 0), row.anchor,
        )
        for row in ledger.rows
        for p in [row.prediction]
    ]  # fmt: skip
    columns = ["line", "time", "hash", "before", "app", "problem", "method", "ranks", "mesh", "clock", "median_s",
               "low_s", "high_s", "model", "calibration", "extrapolated", "remarks", "runs", "anchor"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


LEDGER = (
    Shown("line", lambda row: row.line, number=True),
    Shown("appended (UTC)", lambda row: row.time[:19].replace("T", " ")),
    Shown(
        "target", lambda row: f"{row.app}, {counted(row.ranks, 'rank')}" + f" ({row.mesh})" * bool(row.mesh)
    ),
    Shown("problem", lambda row: row.problem),
    Shown("ms per step", lambda row: number(1e3 * row.median_s), number=True),
    Shown("80 % interval", lambda row: interval(1e3 * row.low_s, 1e3 * row.high_s), number=True),
    Shown("model", lambda row: row.model),
    Shown("runs", lambda row: row.runs or "", number=True),
    Shown("hash", lambda row: row.hash[:HASH_SHOWN]),
)
ANCHOR = Shown("not before", lambda row: row.anchor)


def ledger_tables(score: Score, ledger: Ledger) -> list[tuple[str, Table]]:
    """The rows of the ledger, the latest first."""
    latest = ledger_frame(score, ledger).iloc[::-1].head(ROWS_SHOWN)
    columns = (*LEDGER, ANCHOR) if (latest["anchor"] != "").any() else LEDGER
    return [(f"The ledger {ledger.path}", lines_of(latest, columns))] if len(latest) else []


def _percent(x: float, limit: float = math.inf) -> str:
    """`x` as text, with " !" if it is above `limit`."""
    return "" if math.isnan(x) else f"{x:.1%}{' !' if x > limit else ''}"
