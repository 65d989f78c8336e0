"""Scores of predictions in words and tables, for the terminal and for the report."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from analysis.page.sections import Table
from analysis.page.text import interval, number
from analysis.predict.scoring.score import FLOOR_MOST, NOT_TESTABLE, Score, methods
from analysis.verdict import counted
from miniapps.untrusted.ledger import Ledger

HASH_SHOWN = 12  # characters
ROWS_SHOWN = 200  # of a ledger
MISSED = 1.0  # an error from which a percentage says less than a factor
USUAL = "wall clock"  # the kind of targets that goes without saying


def sentences(score: Score) -> list[str]:
    """The score of each kind of targets in one sentence, the verdict first."""
    if not len(score.summary):
        return [f"{NOT_TESTABLE}: no run was predicted before it ran"]
    return [_sentence(own, len(score.summary) > 1) for own in score.summary.itertuples(index=False)]


def _sentence(own, several: bool) -> str:
    floor = "of unknown floor" if math.isnan(own.floor) else f"over a floor of {own.floor:.1%}"
    verdict = own.verdict
    if own.within == own.within and verdict != NOT_TESTABLE:
        verdict += f" (at most {own.within:.1%} asked for)"
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
    """How well the price of each guarantee was predicted."""
    return [
        f"price of {e.guarantee}, {e.kind}: {e.verdict}, {e.error:.1%} error "
        + ("of unknown floor" if math.isnan(e.floor) else f"over a floor of {e.floor:.1%}")
        + f", of {counted(e.targets, 'price')}"
        for e in score.price_errors.itertuples(index=False)
    ]


def all_tables(score: Score, ledger: Ledger) -> list[tuple[str, Table]]:
    """Every table, in the order in which they are read."""
    return [
        *summary_tables(score), *target_tables(score), *price_tables(score), *method_tables(score),
        *region_tables(score),
        *ledger_tables(score, ledger),
    ]  # fmt: skip


def exported(score: Score, ledger: Ledger) -> dict[str, pd.DataFrame]:
    """The frames that are written as CSV, by name."""
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
    """{row: what it predicts}, told apart by problem and method where apps and ranks do not."""
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
    """What tells the method of a target from those of the targets `beside` it, itself among them: its guarantee, and
    the hash of the method where others have that guarantee, too. Nothing where there is one method."""
    methods = beside[["method", "guarantee"]].drop_duplicates("method")
    if len(methods) < 2:
        return []
    words = [target.guarantee] if target.guarantee else []
    alike = int((methods["guarantee"] == target.guarantee).sum())
    return words + ([f"method {target.method[:6]}"] if alike > 1 or not words else [])


def target_tables(score: Score) -> list[tuple[str, Table]]:
    """Predicted and measured times of every target, its error beside its floor."""
    columns = ("line", "target", "runs", "predicted, ms per step", "80 % interval", "measured", "error", "floor",
               "bias", "within", "extrapolated")  # fmt: skip
    known = names(score.targets)
    rows = [
        (
            t.row, known[t.row], t.runs, number(1e3 * t.median_s), interval(1e3 * t.low_s, 1e3 * t.high_s),
            number(1e3 * t.measured_s), f"{t.error:.1%}", _percent(t.floor, FLOOR_MOST), f"{t.bias:+.1%}",
            f"{t.inside} of {t.runs}", t.extrapolated,
        )
        for t in score.targets.itertuples(index=False)
    ]  # fmt: skip
    return [("Predicted and measured", Table(columns, rows, (columns[0], *columns[2:9])))] if rows else []


def price_tables(score: Score) -> list[tuple[str, Table]]:
    """What guarantees cost, predicted and measured, each beside how far two such prices lie apart."""
    columns = ("guarantee", "against", "target", "predicted", "measured", "error", "floor")
    known = names(score.targets)
    rows = [
        (
            p.guarantee, p.weakest, known[p.row], f"x {number(p.predicted)}", f"x {number(p.measured)}",
            f"{p.error:.1%}", _percent(p.floor, FLOOR_MOST),
        )
        for p in score.prices.itertuples(index=False)
    ]  # fmt: skip
    if not rows:
        return []
    heads = ("guarantee", "", "prices", "error", "floor", "verdict")
    errors = [
        (e.guarantee, e.kind, e.targets, f"{e.error:.1%}", _percent(e.floor, FLOOR_MOST), e.verdict)
        for e in score.price_errors.itertuples(index=False)
    ]
    return [
        ("Price of each guarantee", Table(heads, errors, heads[2:5])),
        ("Prices, predicted and measured", Table(columns, rows, columns[3:])),
    ]


def method_tables(score: Score) -> list[tuple[str, Table]]:
    """The prediction beside the baselines."""
    columns = ("predicted by", "targets", "error", "error of the prediction there", "prediction better for")
    return [
        (
            f"Beside simple predictions: {kind}",
            Table(columns, [
                (
                    m.method, m.targets, _percent(m.error), _percent(m.prediction_error),
                    "" if m.method == "prediction" else f"{m.better} of {m.targets}",
                )
                for m in own.itertuples(index=False)
            ], columns[1:]),
        )
        for kind, own in methods(score.targets).groupby("kind")
    ]  # fmt: skip


def summary_tables(score: Score) -> list[tuple[str, Table]]:
    """The score in numbers, a row per kind of targets."""
    columns = (
        "",
        "targets",
        "runs",
        "error",
        "floor",
        "within the 80 % interval",
        "CRPS over measured",
        "verdict",
    )
    rows = [
        (
            own.kind, own.targets, own.runs, f"{own.error:.1%}", _percent(own.floor, FLOOR_MOST),
            f"{own.coverage:.0%} ({interval(own.coverage_low, own.coverage_high, '{:.0%}'.format)})",
            f"{own.crps:.1%}", own.verdict,
        )
        for own in score.summary.itertuples(index=False)
    ]  # fmt: skip
    return [("Score", Table(columns, rows, columns[1:7]))] if rows else []


def region_tables(score: Score) -> list[tuple[str, Table]]:
    """The regions of each target whose prediction differs most from what was measured, in seconds."""
    columns = ("target", "region", "predicted, ms per step", "measured", "ratio")
    known = names(score.targets)
    off = score.regions[score.regions["measured_s"].notna()]
    off = off.assign(apart=(off["measured_s"] - off["predicted_s"]).abs())
    rows = []
    for row, own in off.groupby("row", sort=False):
        for region in own.nlargest(5, "apart").itertuples(index=False):
            rows.append(
                (known[row], region.name, number(1e3 * region.predicted_s), number(1e3 * region.measured_s),
                 number(region.ratio))
            )  # fmt: skip
    return [("Regions that differ most", Table(columns, rows, columns[2:]))] if rows else []


def ledger_frame(score: Score, ledger: Ledger) -> pd.DataFrame:
    """A row per row of the ledger: `line`, `time`, `hash`, `before`, what it predicts, and how many `runs` it has."""
    runs = dict(zip(score.targets["row"], score.targets["runs"], strict=True))
    rows = [
        (
            row.number, row.time, row.hash, row.before, p.app, p.problem, p.method, p.ranks, p.mesh, p.clock, p.median,
            *p.interval, p.model, p.calibration, ", ".join(p.extrapolated), "; ".join(p.remarks),
            runs.get(row.number, 0),
        )
        for row in ledger.rows
        for p in [row.prediction]
    ]  # fmt: skip
    columns = ["line", "time", "hash", "before", "app", "problem", "method", "ranks", "mesh", "clock", "median_s",
               "low_s", "high_s", "model", "calibration", "extrapolated", "remarks", "runs"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def ledger_tables(score: Score, ledger: Ledger) -> list[tuple[str, Table]]:
    """The rows of the ledger, the latest first."""
    columns = (
        "line",
        "appended (UTC)",
        "target",
        "problem",
        "ms per step",
        "80 % interval",
        "model",
        "runs",
        "hash",
    )
    frame = ledger_frame(score, ledger).iloc[::-1].head(ROWS_SHOWN)
    rows = [
        (
            r.line, r.time[:19].replace("T", " "), f"{r.app}, {counted(r.ranks, 'rank')}", r.problem,
            number(1e3 * r.median_s), interval(1e3 * r.low_s, 1e3 * r.high_s), r.model, r.runs or "",
            r.hash[:HASH_SHOWN],
        )
        for r in frame.itertuples(index=False)
    ]  # fmt: skip
    return [
        (f"The ledger {ledger.path}", Table(columns, rows, (columns[0], *columns[4:6], columns[7])))
    ] * bool(rows)


def _percent(x: float, limit: float = math.inf) -> str:
    """As text; what is above `limit` with a sign."""
    return "" if math.isnan(x) else f"{x:.1%}{' !' if x > limit else ''}"
