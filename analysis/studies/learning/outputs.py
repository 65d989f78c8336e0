"""Effects of the orders of addition in training and in inference, fixed or random, on weights and outputs.

Uses runs that recorded `outputs` after their last step. A *setting* is the runs that differ only in their two orders
and in the seeds of these. Each run is compared with the first run of its setting that has the same orders, and with the
first whose orders are both fixed, as in Shanmugavelu et al. (arXiv 2408.05148).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.history import named
from analysis.load.frames import Frames
from analysis.studies.contract import frame
from analysis.studies.learning.runs import SEEDS, Trainings
from kernels import bits
from kernels.as_json import Column
from miniapps.trace.records import DECISION

TRAINING, INFERENCE = "aggregate", "aggregate_inference"  # last parts of the option names
DRAWN = "emulated"  # an order of arrival drawn from a seed
BY_CHANCE = ("atomic", DRAWN)
# The compared results: {name: (its fingerprints, its values)}.
LOOKED_AT = {"weights": ("weights", "weights_sample"), "outputs": ("outputs", "outputs"),
             "predictions": ("predictions", f"{DECISION}class")}  # fmt: skip
NUMBERS = ("weights", "outputs")  # predictions are classes, which have no relative difference
OUTPUTS = {
    "family": Column("str"), "training": Column("str", "order"), "inference": Column("str", "order"),
    "training_fixed": Column("bool", "not a random order"), "inference_fixed": Column("bool"),
    "what": Column("str", "`weights`, `outputs` or `predictions`"),
    "settings": Column("int64", "groups of runs that differ only in orders"), "runs": Column("int64"),
    "distinct": Column("int64", "different results by all bits, sum over settings"),
    "pairs": Column("int64", "with the first run of the same setting and orders"),
    "differing": Column("int64", "pairs that differ in bits"),
    "v_ermv": Column("float64", "of the recorded values, median over pairs"),
    "v_ermv_least": Column("float64"), "v_ermv_most": Column("float64"), "v_c": Column("float64", "median over pairs"),
    "bound": Column("float64", "if no pair differed: upper bound of the probability of a difference, at 95 %"),
    "reference": Column("str", "the fixed orders that the last columns compare with; empty without any"),
    "reference_pairs": Column("int64"), "reference_v_ermv": Column("float64", "median"),
    "reference_v_c": Column("float64", "median"),
}  # fmt: skip


@dataclass(frozen=True)
class Answers:
    """The results of a run. `prints` {name: its fingerprints}; `values` {name: (places, float64)}."""

    orders: tuple[str, str]  # of training, of inference
    prints: dict[str, tuple]
    values: dict[str, tuple[np.ndarray, np.ndarray]]

    @property
    def fixed(self) -> bool:
        """Whether neither order is random."""
        return not set(self.orders) & set(BY_CHANCE)


@dataclass(frozen=True)
class Pair:
    """The difference of two compared runs."""

    differs: bool
    v_ermv: float
    v_c: float


def outputs(known: Trainings) -> pd.DataFrame:
    """A row for each family, pair of orders, and of `weights`, `outputs`, `predictions`; columns OUTPUTS.

    `runs` whose orders of arrival differ, or may differ, in `settings` of runs that agree otherwise; `distinct`
    results, summed over settings; `pairs` with the first run of the same setting and orders; `differing`: how many of
    these differ in bits; V_ermv (median, least, most) and V_c (median) over pairs, of the recorded values; `bound`: if
    no pair differs, the upper bound of the probability of a difference, at 95 %. `reference`: the fixed orders that the
    last columns compare with.
    """
    rows = []
    complete = known.runs[known.runs["complete"]]
    for family, same in complete.groupby("family", sort=False):
        rows += _of_family(str(family), _settings(known.frames, same))
    return frame(rows, OUTPUTS)


def _settings(frames: Frames, runs: pd.DataFrame) -> list[list[Answers]]:
    """The runs that recorded outputs, by setting, without runs that repeat the same random orders."""
    stated = frames.runs.set_index(["run", "repeat"])
    settings: dict[str, dict[tuple, Answers]] = {}
    for run, repeat in runs[["run", "repeat"]].itertuples(index=False, name=None):
        row = stated.loc[(run, repeat)]
        method = json.loads(row["method"])
        orders = {key.rpartition(".")[2]: key for key in method}
        if TRAINING not in orders or INFERENCE not in orders:
            continue
        if "outputs" not in frames.recorded("fingerprints", run, repeat):
            continue
        pair = (str(method.pop(orders[TRAINING])), str(method.pop(orders[INFERENCE])))
        seeds = {key: method.pop(key) for key in list(method) if key.startswith(SEEDS)}
        setting = json.dumps(
            [row["app"], int(row["size"]), method, json.loads(row["problem_options"])], sort_keys=True
        )
        # Runs with equal seeds of their orders have the same orders of arrival: comparing them shows nothing.
        drawn = set(pair) & set(BY_CHANCE) == {DRAWN}
        trial = json.dumps(seeds, sort_keys=True) if drawn else f"{run}:{repeat}"
        own = settings.setdefault(setting, {})
        if (pair, trial) not in own:
            own[pair, trial] = _answers(frames, run, repeat, pair)
    return [list(own.values()) for own in settings.values()]


def _answers(frames: Frames, run: str, repeat: int, orders: tuple[str, str]) -> Answers:
    prints, values = frames.of("fingerprints", run, repeat), frames.of("values", run, repeat)
    last = prints["step"][named(prints, "outputs")].max()
    prints, values = prints[prints["step"] == last], values[values["step"] == last]
    hashes: dict[str, tuple] = {}
    numbers: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for what, (of_prints, of_values) in LOOKED_AT.items():
        own = prints[named(prints, of_prints)].sort_values("block", kind="stable")
        hashes[what] = tuple(own[["block", "hi", "lo"]].itertuples(index=False, name=None))
        own = values[named(values, of_values)].sort_values("block", kind="stable")
        numbers[what] = own["block"].to_numpy(), own["value"].to_numpy()
    return Answers(orders, hashes, numbers)


def _of_family(family: str, settings: list[list[Answers]]) -> list[dict]:
    """The rows of a family, fixed orders first."""
    rows = []
    pairs = {answers.orders for setting in settings for answers in setting}
    for orders in sorted(pairs, key=lambda pair: ([order in BY_CHANCE for order in pair], pair)):
        groups = [(own, _reference(setting)) for setting in settings if (own := _with(setting, orders))]
        rows += [_row(family, orders, what, groups) for what in LOOKED_AT]
    return rows


def _with(setting: list[Answers], orders: tuple[str, str]) -> list[Answers]:
    return [answers for answers in setting if answers.orders == orders]


def _reference(setting: list[Answers]) -> Answers | None:
    """The first run of the setting whose orders are both fixed."""
    return next((answers for answers in setting if answers.fixed), None)


def _row(family: str, orders: tuple[str, str], what: str, groups: Sequence) -> dict:
    """The row for one kind of result, `what`; `groups`: (runs, reference or None) of each setting."""
    pairs = [_pair(what, own[0], other) for own, _ in groups for other in own[1:]]
    to_fixed = [
        _pair(what, first, each) for own, first in groups if first and not own[0].fixed for each in own
    ]
    names = {", ".join(first.orders) for own, first in groups if first and not own[0].fixed}
    differing, relative = sum(pair.differs for pair in pairs), _defined(pair.v_ermv for pair in pairs)
    return {
        "family": family, "training": orders[0], "inference": orders[1],
        "training_fixed": orders[0] not in BY_CHANCE, "inference_fixed": orders[1] not in BY_CHANCE,
        "what": what, "settings": len(groups), "runs": sum(len(own) for own, _ in groups),
        "distinct": sum(len({answers.prints[what] for answers in own}) for own, _ in groups),
        "pairs": len(pairs), "differing": differing,
        "v_ermv": _median(relative), "v_ermv_least": min(relative, default=np.nan),
        "v_ermv_most": max(relative, default=np.nan),
        "v_c": _median(pair.v_c for pair in pairs),
        "bound": bits.bound(len(pairs) + 1) if pairs and not differing else np.nan,
        "reference": "; ".join(sorted(names)), "reference_pairs": len(to_fixed),
        "reference_v_ermv": _median(pair.v_ermv for pair in to_fixed),
        "reference_v_c": _median(pair.v_c for pair in to_fixed),
    }  # fmt: skip


def _pair(what: str, first: Answers, other: Answers) -> Pair:
    """The difference of `other` from `first`: of fingerprints, and of the values that both recorded."""
    (places, a), (others, b) = first.values[what], other.values[what]
    _, in_first, in_other = np.intersect1d(places, others, return_indices=True)
    a, b = a[in_first], b[in_other]
    differs = first.prints[what] != other.prints[what]
    if not len(a):
        return Pair(differs, np.nan, np.nan)
    v_ermv = float(bits.v_ermv(a, b)[0]) if what in NUMBERS else np.nan
    return Pair(differs, v_ermv, float(bits.differ(a, b).mean()))


def _defined(numbers: Iterable[float]) -> list[float]:
    return [x for x in numbers if x == x]


def _median(numbers: Iterable[float]) -> float:
    """The median of the defined numbers; NaN without any."""
    known = _defined(numbers)
    return float(np.median(known)) if known else np.nan
