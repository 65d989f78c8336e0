"""Decisions about wires that runs recorded: what was predicted of each, and what came of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from analysis.history import series
from analysis.training.frames import ACCURACY, CURVE_ERROR, LOSS, Trainings

CHOICE = "wire"  # the name of these decisions in the table `choices`
LOSSES = 10  # of steps, whose median is the loss at a decision
FEWEST = 6  # decisions for a rank correlation

DECISIONS = {"family": "str", "line": "str", "seeds": "str", "rate": "float64", "run": "str", "repeat": "int64",
             "step": "int64", "choice": "str", "tensors": "int64", "score": "float64", "curve_error": "float64",
             "seconds": "float64", "loss_before": "float64", "loss_after": "float64", "gained_per_s": "float64",
             "accuracy_before": "float64", "accuracy_after": "float64"}  # fmt: skip
SUMMARY = {"family": "str", "line": "str", "runs": "int64", "decisions": "int64", "choices": "str",
           "scored": "int64", "gained": "int64", "correlation": "float64", "curve_error": "float64"}  # fmt: skip


def decisions(known: Trainings) -> pd.DataFrame:
    """A row per decision of each run, columns DECISIONS.

    `choice`: what was chosen, of several tensors with how many; `score`: the largest that was recorded, which is what
    the policy predicted (of AdaPrec the gain of loss per second). `loss_before` and `loss_after`: medians over the last
    steps before the decision and before the next one; `gained_per_s`: their difference over the time between, which
    is what came of it; `accuracy_before` and `accuracy_after`: the last that were measured by then. NaN where nothing
    was recorded.
    """
    rows = []
    for run in known.runs.to_dict("records"):
        chosen = known.frames.of("choices", run["run"], run["repeat"])
        chosen = chosen[(chosen["name"] == CHOICE).to_numpy()]
        if len(chosen):
            rows += _of_run(known, run, chosen)
    return pd.DataFrame(rows, columns=list(DECISIONS)).astype(DECISIONS)


def _of_run(known: Trainings, run: dict[str, Any], chosen: pd.DataFrame) -> list[dict[str, Any]]:
    values = known.frames.of("values", run["run"], run["repeat"])
    losses, errors, accuracies = (series(values, name) for name in (LOSS, CURVE_ERROR, ACCURACY))
    here = (known.curves["run"] == run["run"]) & (known.curves["repeat"] == run["repeat"])
    curve = known.curves[here.to_numpy()]
    steps = np.unique(chosen["step"].to_numpy())
    ends = [*steps[1:].tolist(), run["last_step"] + 1]
    place = {key: run[key] for key in ("family", "line", "seeds", "rate", "run", "repeat")}
    rows = []
    for step, end in zip(steps.tolist(), ends, strict=True):
        same = chosen[(chosen["step"] == step).to_numpy()]
        counts = Counter(same["choice"].astype("str"))
        before, after = _typical(losses, step), _typical(losses, end)
        seconds = float(np.diff(np.interp([step, end], curve["step"], curve["seconds"]))[0])
        scores = same["score"].to_numpy()
        told = errors[1][(errors[0] >= step) & (errors[0] < end)]
        rows.append(
            place
            | {
                "step": step,
                "choice": ", ".join(name + (f" ({n})" if len(same) > 1 else "") for name, n in counts.most_common()),
                "tensors": len(same),
                "score": np.fmax.reduce(scores, initial=np.nan),
                "curve_error": told[0] if len(told) else np.nan,
                "seconds": seconds,
                "loss_before": before,
                "loss_after": after,
                "gained_per_s": (before - after) / seconds if seconds > 0 else np.nan,
                "accuracy_before": _latest(accuracies, step),
                "accuracy_after": _latest(accuracies, end),
            }
        )  # fmt: skip
    return rows


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """What `decisions` returned by family and line; columns SUMMARY.

    `choices`: how often each was made; of `scored` decisions, whose score and outcome are known, `gained` many
    lowered the loss; `correlation`: Spearman's of score and gain per second, NaN for fewer than 6 or where one
    does not vary; `curve_error`: the median size.
    """
    lines = []
    for (family, line), same in rows.groupby(["family", "line"], sort=False):
        both = same[["score", "gained_per_s"]].replace([np.inf, -np.inf], np.nan).dropna()
        enough = len(both) >= FEWEST and (both.nunique() > 1).all()
        choices = Counter(same["choice"])
        lines.append(
            {
                "family": family, "line": line, "runs": len(same[["run", "repeat"]].drop_duplicates()),
                "decisions": len(same), "choices": "; ".join(f"{name}: {n}" for name, n in choices.most_common()),
                "scored": len(both), "gained": int((both["gained_per_s"] > 0).sum()),
                "correlation": both["score"].rank().corr(both["gained_per_s"].rank()) if enough else np.nan,
                "curve_error": same["curve_error"].abs().median(),
            }
        )  # fmt: skip
    return pd.DataFrame(lines, columns=list(SUMMARY)).astype(SUMMARY)


def _typical(losses: tuple[np.ndarray, np.ndarray], step: int) -> float:
    """The median loss of the last steps before `step`, of the first step where there is none before."""
    before = losses[1][losses[0] < step][-LOSSES:]
    before = before if len(before) else losses[1][:1]
    return float(np.median(before)) if len(before) else np.nan


def _latest(accuracies: tuple[np.ndarray, np.ndarray], step: int) -> float:
    """The last accuracy that was measured by the end of the step before, or in it where the run ended there."""
    known = accuracies[1][accuracies[0] < step]
    return float(known[-1]) if len(known) else np.nan
