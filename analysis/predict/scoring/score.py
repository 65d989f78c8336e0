"""Scores the predictions of a ledger by later runs.

A run counts for a row of the ledger if it has the row's app, problem, method and ranks, and proves that the row is
older than the run. The proof: the trace records the number of rows and the last hash of the ledger at the start of the
run, and the row is among these rows. Of several such rows for one clock, the last one counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from analysis.load.frames import Frames
from analysis.predict.reading.measured import hash_of_run, measured
from analysis.predict.scoring import baselines, price_score
from analysis.runs import label
from analysis.verdict import counted
from miniapps.untrusted.ledger import START, Ledger, Row
from miniapps.untrusted.prediction import PERCENTS, Prediction

FLOOR_MOST = 0.10  # above this floor, an error means nothing
PASSED, NOT_PASSED, SCORED, NOT_TESTABLE = "passed", "not passed", "scored", "not testable"
COLUMN = dict(zip(baselines.NAMES, ("inverse_s", "replay_s", "extrap_s"), strict=True))
SUMMARY = ("kind", "verdict", "targets", "runs", "took", "error", "floor", "inside", "coverage", "coverage_low",
           "coverage_high", "crps", "better", "compared", "within")  # fmt: skip
SAMPLES = ("row", "run", "repeat", "seconds", "ratio", "inside", "crowded", "crps_s", *COLUMN.values())
TARGETS = ("row", "kind", "app", "problem", "method", "ranks", "mesh", "clock", "median_s", "low_s", "high_s", "runs",
           "launches", "measured_s", "error", "bias", "floor", "inside", "crps_s", *COLUMN.values(), "inverse_error",
           "replay_error", "extrap_error", "best", "extrapolated", "guarantee", "sources")  # fmt: skip
REGIONS = ("row", "name", "predicted_s", "measured_s", "ratio")


@dataclass(frozen=True)
class Score:
    """`samples`: a row per predicted (run, repeat); `targets`: a row per ledger row with samples; `regions`: predicted
    and measured medians of each region; columns SAMPLES, TARGETS, REGIONS. Errors are
    exp(mean |ln(measured / predicted)|) - 1.

    `summary`: a row per kind of targets, columns SUMMARY; wall clock and CPU time are separate kinds, as are runs with
    more ranks than cores. `prices`, `price_errors`: scored prices of guarantees. Sentences: `refused` on runs without
    proof that their prediction is older, `unmeasured` on runs whose times cannot be used, `notes` on the limits of the
    score."""

    samples: pd.DataFrame
    targets: pd.DataFrame
    regions: pd.DataFrame
    summary: pd.DataFrame
    prices: pd.DataFrame
    price_errors: pd.DataFrame
    refused: list[str] = field(default_factory=list)
    unmeasured: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """The worst verdict in `summary`; NOT_TESTABLE if nothing was scored."""
        return next(
            (word for word in (NOT_TESTABLE, NOT_PASSED, PASSED) if word in set(self.summary["verdict"])),
            SCORED if len(self.summary) else NOT_TESTABLE,
        )


def score(frames: Frames, ledger: Ledger, within: float | None = None) -> Score:
    """Scores the predictions in `ledger` by the runs of `frames`; the verdict is whether the error is at most `within`,
    or SCORED without `within`."""
    known = measured(frames)
    sources = _sources(known.points, ledger)
    pairs, refused, notes = _matched(known.points, ledger, sources)
    samples, untimed = _samples(pairs, known.points, sources)
    targets = _targets(samples, ledger, dict(known.points[["run", "guarantee"]].values))
    summary = pd.DataFrame(
        [
            _summary(kind, samples[samples["row"].isin(own["row"])], own, within)
            for kind, own in targets.groupby("kind")
        ],
        columns=list(SUMMARY),
    )
    regions = _regions(samples, known.regions, ledger)
    beside = samples[["row", "run"]].merge(known.points[["run", "beside"]].drop_duplicates("run"), on="run")
    priced = price_score.scored(targets, samples, dict(beside[["row", "beside"]].values))
    notes = [*known.notes, *notes, *untimed, *_limits(targets, summary)]
    return Score(
        samples, targets, regions, summary, priced, _price_errors(priced), refused, known.refused, notes
    )


def crps(prediction: Prediction, seconds: float) -> float:
    """The continuous ranked probability score of a measured time, in seconds. 0 is best; without spread, the score is
    |measured - predicted|.

    It is twice the integral over t of the quantile score (1{y <= q_t} - t) (q_t - y) (Gneiting & Ranjan, Comparing
    density forecasts using threshold- and quantile-weighted scoring rules, J. Business & Economic Statistics 29, 2011),
    by the trapezoidal rule over the levels of PERCENTS. The first and the last quantile also stand for those beyond.
    """
    levels = np.array([0, *PERCENTS, 100]) / 100
    q = np.array([prediction.quantiles[0], *prediction.quantiles, prediction.quantiles[-1]])
    scores = 2 * ((seconds <= q) - levels) * (q - seconds)
    return float(np.sum((scores[1:] + scores[:-1]) / 2 * np.diff(levels)))


def _column(prediction: Prediction) -> str:
    return "wall_s" if prediction.clock == "wall" else "cpu_s"


def error_of(ratios: Sequence[float] | np.ndarray) -> float:
    """exp(mean |ln ratio|) - 1; NaN without ratios."""
    ratios = np.asarray(ratios, float)
    return float(np.expm1(np.mean(np.abs(np.log(ratios))))) if len(ratios) else math.nan


def floor_of(seconds: Sequence[float] | np.ndarray) -> float:
    """The spread between runs of one configuration: exp(median |ln(a / b)|) - 1 over all pairs; NaN for one run."""
    pairs = [abs(math.log(a / b)) for a, b in combinations(seconds, 2)]
    return float(np.expm1(np.median(pairs))) if pairs else math.nan


def _sources(points: pd.DataFrame, ledger: Ledger) -> dict[str, str]:
    """{run: its hash} for the runs that a prediction of the ledger is based on."""
    wanted = {
        each for row in ledger.rows for each in (*row.prediction.traces, row.prediction.calibration) if each
    }
    if not wanted:
        return {}
    hashed = {run: hash_of_run(path) for run, path in points.drop_duplicates("run")[["run", "path"]].values}
    return {run: each for run, each in hashed.items() if each in wanted}


def _matched(
    points: pd.DataFrame, ledger: Ledger, sources: dict[str, str]
) -> tuple[dict[str, list[Row]], list[str], list[str]]:
    """({run: the rows that predict it, one per clock}, sentences on refused runs, notes)."""
    by_target: dict[tuple, list[Row]] = {}
    for row in ledger.rows:
        by_target.setdefault(row.prediction.target, []).append(row)
    pairs: dict[str, list[Row]] = {}
    refused, several = [], 0
    for one in points.drop_duplicates("run").itertuples(index=False):
        rows = by_target.get((one.app, one.problem, one.method, one.size), [])
        before = [row for row in rows if row.number <= one.rows]
        if one.rows >= 0 and (why := _changed(one, ledger)):
            refused.append(f"{one.path}: {why}")
        elif before:
            pairs[one.run] = list({row.prediction.clock: row for row in before}.values())
            several += len(before) > len(pairs[one.run])
        elif one.run in sources:
            continue  # sources of predictions need no prediction
        elif rows and one.rows < 0:
            refused.append(
                f"{one.path}: started without --ledger, so nothing proves that line {rows[0].number} of {ledger.path} "
                f"is older than the run; start runs with --ledger {ledger.path}"
            )
        elif rows:
            refused.append(
                f"{one.path}: line {rows[0].number} of {ledger.path} is younger than this run, which started when the "
                f"ledger had {one.rows} rows; predict first, then run"
            )
        else:
            refused.append(
                f"{one.path}: no row of {ledger.path} predicts it ({one.app}, problem {one.problem}, method "
                f"{one.method}, {one.size} ranks); leave this run out, or give the ledger with its prediction"
            )
    notes = (
        [f"{counted(several, 'run')} with several earlier predictions; the last prediction counts"]
        if several
        else []
    )
    return pairs, refused, notes


def _changed(one: Any, ledger: Ledger) -> str:
    """Why `ledger` does not continue the ledger at the start of a run; empty if it does."""
    if one.rows > len(ledger.rows):
        return (
            f"started with a ledger of {one.rows} rows, and {ledger.path} has {len(ledger.rows)}: rows were removed, "
            "or it is another ledger"
        )
    head = ledger.rows[one.rows - 1].hash if one.rows else START
    if head != one.head:
        place = f"line {one.rows} of {ledger.path}" if one.rows else f"the empty beginning of {ledger.path}"
        return f"{place} does not have the hash that the run recorded: rows were changed, or it is another ledger"
    return ""


def _samples(
    pairs: dict[str, list[Row]], points: pd.DataFrame, sources: dict[str, str]
) -> tuple[pd.DataFrame, list[str]]:
    """The rows of `Score.samples`, and notes on runs that did not record the predicted time."""
    rows, notes = [], []
    predicted = points[points["run"].isin(pairs)]
    for one, row in ((own, row) for own in predicted.itertuples(index=False) for row in pairs[own.run]):
        prediction = row.prediction
        seconds = float(getattr(one, _column(prediction)))
        if not seconds > 0:
            which = label((one.run, one.repeat))
            notes.append(
                f"{which}: line {row.number} predicts CPU time, and the run recorded none of its threads"
            )
            continue
        low, high = prediction.interval
        rows.append(
            (row.number, one.run, one.repeat, seconds, seconds / prediction.median, low <= seconds <= high,
             one.crowded, crps(prediction, seconds), *_simple(prediction, one.alike, points, sources, set(pairs)))
        )  # fmt: skip
    frame = pd.DataFrame(rows, columns=list(SAMPLES))
    return frame.sort_values(["row", "run", "repeat"], ignore_index=True), notes


def _simple(
    prediction: Prediction, alike: str, points: pd.DataFrame, sources: dict[str, str], predicted: set[str]
) -> tuple[float, float, float]:
    """The three baselines for the target of `prediction`: the first two from the source runs on the fewest ranks, the
    third from `alike` runs on all other rank counts."""
    column = _column(prediction)
    mine = [run for run, each in sources.items() if each in prediction.traces]
    same = points[(points["app"] == prediction.app) & (points["problem"] == prediction.problem)]
    base = same[same["run"].isin(mine)]
    inverse = replay = math.nan
    if len(base):
        ranks = int(base["size"].min())
        base = base[base["size"] == ranks]
        seconds, waiting = float(base[column].mean()), float(base["waiting_s"].mean())
        inverse = baselines.inverse(seconds, ranks, prediction.ranks)
        if prediction.clock == "wall":
            replay = baselines.mean_replay(seconds, waiting, ranks, prediction.ranks)
    law = same[(same["alike"] == alike) & (same["run"].isin(mine) | same["run"].isin(predicted))]
    others = law[(law["size"] != prediction.ranks) & (law[column] > 0)]
    times = {int(size): float(own[column].mean()) for size, own in others.groupby("size")}
    return inverse, replay, baselines.extra_p(times, prediction.ranks)


def _targets(samples: pd.DataFrame, ledger: Ledger, guarantees: dict[str, str]) -> pd.DataFrame:
    rows = []
    for number, own in samples.groupby("row"):
        prediction = ledger.rows[number - 1].prediction
        kind = _kind(prediction, bool(own["crowded"].any()))
        simple = own[list(COLUMN.values())].iloc[0]
        seconds = own["seconds"].to_numpy()
        errors = [error_of(seconds / each) if each > 0 else math.nan for each in (prediction.median, *simple)]
        known = [(error, k) for k, error in enumerate(errors) if error == error]
        best = ("prediction", *baselines.NAMES)[min(known)[1]] if len(known) > 1 else ""
        rows.append(
            (number, kind, *prediction.target, prediction.mesh, prediction.clock,
             prediction.median, *prediction.interval, len(own), own["run"].nunique(),
             float(np.median(seconds)), errors[0], float(np.expm1(np.mean(np.log(own["ratio"])))), floor_of(seconds),
             int(own["inside"].sum()), float(own["crps_s"].mean()), *simple, *errors[1:],
             best, ", ".join(prediction.extrapolated),
             guarantees[own["run"].iloc[0]], len(prediction.traces))
        )  # fmt: skip
    return pd.DataFrame(rows, columns=list(TARGETS))


def _kind(prediction: Prediction, crowded: bool) -> str:
    clock = "wall clock" if prediction.clock == "wall" else "CPU time"
    return f"{clock}, more ranks than cores" if crowded else clock


def _summary(kind: str, samples: pd.DataFrame, targets: pd.DataFrame, within: float | None) -> dict[str, Any]:
    """A row of SUMMARY: `error` and `floor` (geometric means: every target counts the same), `inside`: runs within
    their 80 % interval, `coverage` with its 95 % interval `coverage_low`, `coverage_high` (Wilson), `took`: measured
    over predicted time, `crps` over the measured time, `compared`: targets with a baseline, `better`: those for which
    the prediction has the smallest error."""
    from scipy.stats import binomtest

    error, floor = _mean_of(targets["error"]), _mean_of(targets["floor"].dropna())
    inside, runs = int(samples["inside"].sum()), len(samples)
    took = float(np.exp(np.mean(np.log(samples["ratio"]))))
    interval = binomtest(inside, runs).proportion_ci(method="wilson")
    verdict = SCORED if within is None else PASSED if error <= within else NOT_PASSED
    return {
        "kind": kind, "verdict": verdict if floor <= FLOOR_MOST else NOT_TESTABLE,
        "targets": len(targets), "runs": runs, "took": took, "error": error, "floor": floor, "inside": inside,
        "coverage": inside / runs, "coverage_low": float(interval.low), "coverage_high": float(interval.high),
        "crps": float((samples["crps_s"] / samples["seconds"]).mean()),
        "better": int((targets["best"] == "prediction").sum()), "compared": int((targets["best"] != "").sum()),
        "within": math.nan if within is None else within,
    }  # fmt: skip


def _price_errors(priced: pd.DataFrame) -> pd.DataFrame:
    """The errors of each guarantee's prices, beside their floors; columns ERRORS."""
    rows = []
    for (kind, guarantee), own in priced.groupby(["kind", "guarantee"], sort=False):
        floor = _mean_of(own["floor"].dropna())
        verdict = SCORED if floor <= FLOOR_MOST else NOT_TESTABLE
        rows.append((kind, guarantee, len(own), _mean_of(own["error"]), floor, verdict))
    return pd.DataFrame(rows, columns=list(price_score.ERRORS))


def _mean_of(errors: pd.Series) -> float:
    """The geometric mean of `errors`, as exp(mean ln(1 + error)) - 1; NaN without errors."""
    return float(np.expm1(np.log1p(errors).mean())) if len(errors) else math.nan


def methods(targets: pd.DataFrame) -> pd.DataFrame:
    """The prediction beside the baselines, a row per `kind` of targets and `method`: number of `targets`, `error`, the
    prediction's error over the same targets (`prediction_error`), and for how many of them it is `better`."""
    rows = []
    for kind, same in targets.groupby("kind"):
        whole = _mean_of(same["error"])
        rows.append((kind, "prediction", len(same), whole, whole, 0))
        for name, column in COLUMN.items():
            errors = same[column.replace("_s", "_error")]
            own, errors = same[errors.notna()], errors.dropna()
            better = int((own["error"] < errors).sum())
            rows.append((kind, name, len(own), _mean_of(errors), _mean_of(own["error"]), better))
    return pd.DataFrame(rows, columns=["kind", "method", "targets", "error", "prediction_error", "better"])


def _regions(samples: pd.DataFrame, measured_regions: pd.DataFrame, ledger: Ledger) -> pd.DataFrame:
    pieces = []
    together = samples[["row", "run", "repeat"]].merge(measured_regions, on=["run", "repeat"])
    medians = together.groupby(["row", "name"])["seconds"].median()
    for number in samples["row"].unique():
        prediction = ledger.rows[number - 1].prediction
        if prediction.clock != "wall":
            continue  # traces time regions by the wall clock only
        for name, predicted in prediction.regions.items():
            took = float(medians.get((number, name), math.nan))
            ratio = took / predicted if predicted > 0 else math.nan
            pieces.append((int(number), name, predicted, took, ratio))
    return pd.DataFrame(pieces, columns=list(REGIONS))


def _limits(targets: pd.DataFrame, summary: pd.DataFrame) -> list[str]:
    """Sentences on the limits of the score."""
    notes = []
    if alone := int((targets["runs"] < 2).sum()):
        notes.append(
            f"{alone} of {counted(len(targets), 'target')} ran once, and a floor needs repeats; repeat them"
        )
    if one := int(((targets["runs"] > 1) & (targets["launches"] < 2)).sum()):
        notes.append(
            f"floors of {counted(one, 'target')} are from repeats of one launch, and launches may differ more; launch "
            "them again"
        )
    for own in summary[summary["verdict"] == NOT_TESTABLE].itertuples(index=False):
        what = f"is {own.floor:.1%}, above {FLOOR_MOST:.0%}" if own.floor == own.floor else "is unknown"
        notes.append(
            f"{own.kind}: the floor, the spread between runs of one configuration, {what}: no error can be judged"
        )
    return notes
