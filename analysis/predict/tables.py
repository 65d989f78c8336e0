"""Scores of predictions in words and tables, for the terminal and for the report."""

from __future__ import annotations

import math

import pandas as pd

from analysis.page.sections import Table
from analysis.page.text import interval, number
from analysis.predict.score import FLOOR_MOST, NOT_TESTABLE, Score, methods
from analysis.verdict import counted
from miniapps.received.ledger import Ledger

HASH_SHOWN = 12  # characters
ROWS_SHOWN = 200  # of a ledger


def sentence(score: Score) -> str:
    """The score in one sentence, the verdict first."""
    own = score.summary
    if not own["targets"]:
        return f"{NOT_TESTABLE}: no run was predicted before it ran"
    against = f"{own['error']:.1%} geometric mean error"
    floor = "of unknown floor" if math.isnan(own["floor"]) else f"over a floor of {own['floor']:.1%}"
    verdict = own["verdict"]
    if own["within"] is not None and verdict != NOT_TESTABLE:
        verdict += f" (at most {own['within']:.1%} asked for)"
    return (
        f"{verdict}: {against} {floor}, of {counted(own['targets'], 'target')} in {counted(own['runs'], 'run')}; "
        f"{own['inside']} of {own['runs']} within the 80 % interval"
        + (
            f"; better than every baseline for {own['better']} of {counted(own['compared'], 'target')}"
            if own["compared"]
            else ""
        )
    )


def all_tables(score: Score, ledger: Ledger) -> list[tuple[str, Table]]:
    """Every table, in the order in which they are read."""
    return [
        *target_tables(score), *method_tables(score), *summary_tables(score), *region_tables(score),
        *ledger_tables(score, ledger),
    ]  # fmt: skip


def exported(score: Score, ledger: Ledger) -> dict[str, pd.DataFrame]:
    """The frames that are written as CSV, by name."""
    return {
        "summary": pd.DataFrame([score.summary] if score.summary["targets"] else []),
        "targets": score.targets,
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
        parts += [f"method {target.method[:6]}"] if alike["method"].nunique() > 1 else []
        same = alike[(alike["problem"] == target.problem) & (alike["method"] == target.method)]
        parts += [f"line {target.row}"] if len(same) > 1 else []
        words[target.row] = ", ".join(parts)
    return words


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


def method_tables(score: Score) -> list[tuple[str, Table]]:
    """The prediction beside the baselines."""
    columns = ("predicted by", "targets", "error", "error of the prediction there", "prediction better for")
    rows = [
        (
            m.method, m.targets, _percent(m.error), _percent(m.prediction_error),
            "" if m.method == "prediction" else f"{m.better} of {m.targets}",
        )
        for m in methods(score.targets).itertuples(index=False)
    ]  # fmt: skip
    return [("Beside simple predictions", Table(columns, rows, columns[1:]))] if len(score.targets) else []


def summary_tables(score: Score) -> list[tuple[str, Table]]:
    """The score in numbers."""
    own = score.summary
    if not own["targets"]:
        return []
    covered = interval(own["coverage_low"], own["coverage_high"], "{:.0%}".format)
    rows = [
        ("error: exp(mean |ln(measured / predicted)|) - 1", f"{own['error']:.1%}"),
        (
            "floor: the same between runs of one configuration, by the median",
            _percent(own["floor"], FLOOR_MOST),
        ),
        ("runs within the 80 % interval", f"{own['coverage']:.0%} ({covered})"),
        ("CRPS over the measured time", f"{own['crps']:.1%}"),
        ("verdict", own["verdict"]),
    ]
    return [("Score", Table(("", "over all targets"), rows, ("over all targets",)))]


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
