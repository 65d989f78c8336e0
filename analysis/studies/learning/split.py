"""Splits the variance of the accuracy among seeds, order of additions and wire."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd

from analysis.runs import ids
from analysis.studies.components.estimates import of_problem
from analysis.studies.components.observations import ALLOCATION, LAUNCH, NODE, RANDOM, Observations
from analysis.studies.contract import frame
from analysis.studies.learning.prices import at, common_rates, named
from analysis.studies.learning.runs import ACCURACY, RATE, Trainings
from kernels.as_json import Column

WORDS = {"init": "initial weights", "data": "order of the data", "dropout": "dropout", "seed": "seed",
         "ordering": "order of additions", "wire": "wire", "guarantee": "guarantee", "ranks": "number of ranks",
         "combination": "combinations of these", "launch": "launches",
         "repeat": "runs that agree in all these"}  # fmt: skip
SPLIT = {
    "family": Column("str"), "rate": RATE, "observations": Column("int64"), "factor": Column("str"),
    "words": Column("str"), "levels": Column("float64"), "df": Column("float64"), "variance": Column("float64"),
    "variance_low": Column("float64", "needs 8 launches that differ in nothing else"),
    "variance_high": Column("float64"), "share": Column("float64", "of all"),
    "negative": Column("bool", "the estimate is below 0"), "alias": Column("str", "factors that it is confounded with"),
    "remark": Column("str"),
}  # fmt: skip


def split(known: Trainings) -> pd.DataFrame:
    """The variance components of the final accuracy of complete runs, a row per family, rate and factor; columns SPLIT.

    Factors are each varying seed, guarantee, order of additions, wire and rank count, and their combinations. The
    residual is between runs that agree in all these: additions in order of arrival. Henderson's method 3 (the study of
    components) gives the estimates, with intervals if enough launches agree in all. `share`: of the sum of all;
    `alias`: factors that this one is confounded with, so that it has no estimate of its own.
    """
    rows = []
    complete = known.runs[known.runs["complete"]]
    for family, own in complete.groupby("family", sort=False):
        for rate in common_rates(own):
            same = at(own, rate).reset_index(drop=True)
            found = of_problem(_observed(known, family, same))
            whole = np.nansum([row["variance"] for row in found])
            for row in found:
                variance = row["variance"]
                if row["factor"] in RANDOM and variance != variance:
                    continue  # allocations, nodes and launches count only if the design separates them
                rows.append(
                    {key: row[key] for key in ("observations", "factor", "levels", "df", "variance", "negative",
                                               "alias")}
                    | {"family": family, "rate": rate, "variance_low": row["low"], "variance_high": row["high"],
                       "share": variance / whole if whole > 0 else np.nan,
                       "words": WORDS.get(row["factor"], row["factor"]), "remark": _in_words(row["remark"])}
                )  # fmt: skip
    return frame(rows, SPLIT)


def _in_words(remark: str) -> str:
    """`remark` with its factors in words."""
    return re.sub(r"\b(" + "|".join(WORDS) + r")\b", lambda match: WORDS[match[0]], remark)


def _observed(known: Trainings, family: str, runs: pd.DataFrame) -> Observations:
    levels = pd.DataFrame([known.levels[run] for run in ids(runs)])
    treatments = tuple(name for name in levels if levels[name].nunique() > 1)
    places = known.frames.runs.set_index(["run", "repeat"]).loc[ids(runs)]
    levels[ALLOCATION] = places["allocation_id"].to_numpy()
    levels[NODE] = [str(json.loads(text).get("node", "")) for text in places["environment"]]
    levels[LAUNCH] = runs["run"]
    accuracy = pd.DataFrame({ACCURACY: runs["accuracy"].to_numpy(np.float64)})
    step = int(runs["last_step"].max())
    return Observations("", f"{family} {named(runs['rate'].iloc[0])}", levels[[*treatments, *RANDOM]], treatments,
                        accuracy, {ACCURACY: "absolute"}, {ACCURACY: step})  # fmt: skip
