"""Decisions about wires that runs recorded: the prediction and the outcome of each."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from analysis.history import series
from analysis.studies.contract import frame
from analysis.studies.learning.runs import (
    ACCURACY,
    LINE,
    LOSS,
    RATE,
    RUN,
    SEEDS_OF,
    Trainings,
    elapsed,
    expected,
)
from kernels.as_json import Column

NAMES = ("wire", "fastest", "lgreco")  # names of these decisions in the table `choices`
BEGIN, END = "begin", "end"  # further choices: the states before and after a decision
TRIAL = "trial "  # prefix of a state after a trial
LOSSES = 10  # steps whose median is the loss at a decision
FEWEST = 6  # decisions for a rank correlation

DECISIONS = {
    **LINE, "seeds": SEEDS_OF, "rate": RATE, **RUN, "step": Column("int64", "the step before it"),
    "choice": Column("str"), "tensors": Column("int64", "tensors of the decision"),
    "trial": Column("bool", "a trial: the wire to continue with was chosen after it"),
    "score": Column("float64", "the largest, in the unit of the policy"),
    "curve_error": Column("float64", "of the predicted loss"),
    "seconds": Column("float64", "until the next decision", "s"),
    "loss_before": Column("float64", "of the state before it"), "loss_after": Column("float64"),
    "tried_per_s": Column("float64", "decrease of the loss per second in the last trial of this choice"),
    "gained_per_s": Column("float64", "decrease of the loss per second after it"),
    "accuracy_after": Column("float64", "the last before the next decision"),
}  # fmt: skip
SUMMARY = {
    **LINE, "runs": Column("int64"), "decisions": Column("int64", "without trials"), "trials": Column("int64"),
    "choices": Column("str", "number of decisions for each"), "known": Column("int64", "decisions with an outcome"),
    "gained": Column("int64", "decisions after which the loss fell"),
    "correlation": Column("float64", "Spearman's, of trial and outcome"),
    "curve_error": Column("float64", "of the predicted loss, median size"),
}  # fmt: skip


def decisions(known: Trainings) -> pd.DataFrame:
    """A row per decision of each run, columns DECISIONS. A decision after a step holds until the next decision.

    `choice`: the chosen wire, with the number of tensors for each of several wires; `score`: the largest recorded one,
    in the unit of the policy; `trial`: whether it was a trial, after which the run chose a wire to continue with.
    `loss_before`: of the state before the decision, `loss_after`: before the next decision, medians over up to LOSSES
    steps. `gained_per_s`: the outcome, their difference over the time between them; `tried_per_s`: the expectation, the
    same number from the last trial of this choice; `accuracy_after`: the last one before the next decision;
    `curve_error`: of the predicted loss. NaN where nothing was recorded.
    """
    rows = []
    for run in known.runs.to_dict("records"):
        choices = known.frames.of("choices", run["run"], run["repeat"])
        if choices["name"].isin(NAMES).any():
            rows += _of_run(known, run, choices)
    return frame(rows, DECISIONS)


def _of_run(known: Trainings, run: dict[str, Any], choices: pd.DataFrame) -> list[dict[str, Any]]:
    values = known.frames.of("values", run["run"], run["repeat"])
    losses, accuracies = (series(values, name) for name in (LOSS, ACCURACY))
    errors = dict(zip(*(part.tolist() for part in expected(choices, values)), strict=True))
    chosen = choices[choices["name"].isin(NAMES).to_numpy()]
    steps = np.unique(chosen["step"].to_numpy())
    ends = np.append(steps[1:], max(run["last_step"], steps[-1]))
    times = (elapsed(known.frames, run["run"], run["repeat"], at) for at in (steps, ends))
    place = {key: run[key] for key in ("family", "line", "seeds", "rate", "run", "repeat")}
    first = losses[1][:1]
    left: dict[str, float] = {}  # {state: its loss}
    tried: dict[str, float] = {}
    rows = []
    for step, end, since, until in zip(steps.tolist(), ends.tolist(), *times, strict=True):
        same = chosen[(chosen["step"] == step).to_numpy()]
        names = Counter(same["choice"].astype("str"))
        choice = ", ".join(name + (f" ({n})" if len(same) > 1 else "") for name, n in names.most_common())
        begin, state = (_stated(choices, step, name) for name in (BEGIN, END))
        before = left.get(begin, _typical(first)) if begin else _typical(_within(losses, -1, step), first)
        after = _typical(_within(losses, step, end))
        gained = (before - after) / (until - since) if until > since else np.nan
        trial = state.startswith(TRIAL)
        rows.append(
            place
            | {
                "step": step, "choice": choice, "tensors": len(same), "trial": trial,
                "score": np.fmax.reduce(same["score"].to_numpy(), initial=np.nan),
                "curve_error": errors.get(step, np.nan), "seconds": until - since, "loss_before": before,
                "loss_after": after, "tried_per_s": np.nan if trial else tried.get(choice, np.nan),
                "gained_per_s": gained, "accuracy_after": _last(_within(accuracies, step, end)),
            }
        )  # fmt: skip
        left[state] = after
        if trial:
            tried[choice] = gained
    return rows


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Summarises `rows` from `decisions` by family and line; columns SUMMARY.

    `decisions` leaves out `trials`; `choices`: the number of decisions for each choice; `known`: decisions with an
    outcome; `gained`: how many of these lowered the loss; `correlation`: Spearman's, of the gain per second in the
    trial and after the decision, NaN for fewer than FEWEST pairs or a constant one; `curve_error`: the median size.
    """
    lines = []
    for (family, line), every in rows.groupby(["family", "line"], sort=False):
        same = every[~every["trial"]]
        both = same[["tried_per_s", "gained_per_s"]].dropna()
        enough = len(both) >= FEWEST and (both.nunique() > 1).all()
        choices = Counter(same["choice"])
        lines.append(
            {
                "family": family, "line": line, "runs": len(every[["run", "repeat"]].drop_duplicates()),
                "decisions": len(same), "trials": len(every) - len(same),
                "choices": "; ".join(f"{name}: {n}" for name, n in choices.most_common()),
                "known": int(same["gained_per_s"].notna().sum()), "gained": int((same["gained_per_s"] > 0).sum()),
                "correlation": both["tried_per_s"].rank().corr(both["gained_per_s"].rank()) if enough else np.nan,
                "curve_error": every["curve_error"].abs().median(),
            }
        )  # fmt: skip
    return frame(lines, SUMMARY)


def _stated(choices: pd.DataFrame, step: int, name: str) -> str:
    """The first choice with this `name` in `step`; empty without one."""
    own = choices[((choices["step"] == step) & (choices["name"] == name)).to_numpy()]["choice"]
    return str(own.iloc[0]) if len(own) else ""


def _within(recorded: tuple[np.ndarray, np.ndarray], after: int, to: int) -> np.ndarray:
    """The numbers of the steps after `after`, up to and with `to`."""
    return recorded[1][(recorded[0] > after) & (recorded[0] <= to)]


def _typical(losses: np.ndarray, otherwise: np.ndarray | None = None) -> float:
    """The median of the last LOSSES `losses`; without losses, the median of `otherwise`."""
    last = losses[-LOSSES:] if len(losses) or otherwise is None else otherwise
    return float(np.median(last)) if len(last) else np.nan


def _last(numbers: np.ndarray) -> float:
    return float(numbers[-1]) if len(numbers) else np.nan
