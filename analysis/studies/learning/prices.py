"""What each wire costs: bytes, time, error of the gradient, accuracy; at one learning rate, and each at its best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.studies.contract import frame
from analysis.studies.learning.paired import difference
from analysis.studies.learning.runs import LINE, RATE, WIDEST, Trainings
from kernels.as_json import Column

END, EQUAL_TIME = "at the end", "in equal time"
BEST = "best rate"

PRICES = {
    **LINE, "wire": Column("str"), "rate": RATE, "runs": Column("int64"), "seeds": Column("int64"),
    "accuracy": Column("float64", "median over runs"), "accuracy_least": Column("float64", "over runs"),
    "accuracy_most": Column("float64", "over runs"),
    "in_time": Column("float64", "accuracy when the shortest run ended, median"), "loss": Column("float64", "median"),
    "seconds_per_step": Column("float64", "", "s"),
    "seconds_ratio": Column("float64", "to the reference at this rate"),
    "bytes": Column("float64", "of a rank and step"),
    "bytes_ratio": Column("float64", "to the reference at this rate"), "wire_error": Column("float64"),
    "wire_cosine": Column("float64"), "wire_length": Column("float64"), "best": Column("bool", "rate of the line"),
    "edge": Column("bool", "the best is the smallest or largest that was tried"),
}  # fmt: skip
COMPARISONS = {
    "family": Column("str"), "basis": Column("str", "a rate or `best rate`"),
    "measure": Column("str", "`at the end` or `in equal time`"), "line": Column("str"), "against": Column("str"),
    "rate": RATE, "against_rate": RATE, "pairs": Column("int64", "seeds that both have"),
    "difference": Column("float64", "of accuracies, fractions"), "difference_low": Column("float64"),
    "difference_high": Column("float64"), "sd": Column("float64"),
    "least": Column("float64", "difference that would be seen with power 80 %"),
    "verdict": Column("str", "`differs`, `no difference seen`, `too few seeds`"),
}  # fmt: skip


@dataclass(frozen=True)
class Basis:
    """The comparison in a `family`: `accuracy` {line: mean over repeats, by seeds}, each line at its rate in
    `rates`; `measure` END or EQUAL_TIME. `name` says which rates: `rate 0.05`, or BEST; `first`: the rate at which most
    ran."""

    family: str
    name: str
    measure: str
    accuracy: dict[str, pd.Series]
    rates: dict[str, float]
    first: bool = False


def measured(known: Trainings) -> pd.DataFrame:
    """The complete runs with `in_time`: the last accuracy by the time in which the shortest run of the family ended,
    NaN where it had none by then."""
    runs = known.runs[known.runs["complete"]].copy()
    budget = runs.groupby("family")["seconds"].min()
    curves = known.curves
    early = curves[(curves["seconds"] <= curves["family"].map(budget)).to_numpy()]
    last = early.drop_duplicates(["run", "repeat"], keep="last").set_index(["run", "repeat"])["accuracy"]
    runs["in_time"] = last.reindex(pd.MultiIndex.from_frame(runs[["run", "repeat"]])).to_numpy(np.float64)
    return runs


def prices(known: Trainings) -> pd.DataFrame:
    """A row per family, line and rate; columns PRICES.

    Medians over complete runs; `accuracy_least` and `accuracy_most` over all of them. Ratios are to the reference of
    the line at that rate. `best`: of the line's rates the one with the largest mean accuracy; `edge`: it is the
    smallest or the largest that was tried, so that a better one may lie outside.
    """
    runs = measured(known)
    best = best_rates(runs)
    rows = []
    for (family, line), own in runs.groupby(["family", "line"], sort=False):
        reference = reference_of(runs[runs["family"] == family], line)
        rates = sorted(own["rate"].unique())
        for rate in rates:
            same = at(own, rate)
            base = at(runs[(runs["family"] == family) & (runs["line"] == reference)], rate)
            each = (same["seconds"] / same["steps"]).median()
            rows.append(
                {
                    "family": family, "line": line, "wire": same["wire"].iloc[0], "rate": rate, "runs": len(same),
                    "seeds": same["seeds"].nunique(), "accuracy_least": same["accuracy"].min(),
                    "accuracy_most": same["accuracy"].max(), "seconds_per_step": each,
                    "seconds_ratio": each / (base["seconds"] / base["steps"]).median(),
                    "bytes_ratio": same["bytes"].median() / base["bytes"].median(),
                    "best": rate == best[family, line] or rate != rate,
                    "edge": rate == best[family, line] and rate in (rates[0], rates[-1]),
                    **{name: same[name].median() for name in ("accuracy", "in_time", "loss", "bytes", "wire_error",
                                                              "wire_cosine", "wire_length")},
                }
            )  # fmt: skip
    return frame(rows, PRICES)


def comparisons(known: Trainings) -> pd.DataFrame:
    """Every line against the reference of its family, paired by seeds; columns COMPARISONS, one row for each basis."""
    runs = measured(known)
    rows = []
    for basis in bases(runs):
        own = runs[runs["family"] == basis.family]
        for line, accuracy in basis.accuracy.items():
            reference = reference_of(own, line)
            if reference in (None, line) or reference not in basis.accuracy:
                continue
            d = difference(accuracy, basis.accuracy[reference])
            rows.append(
                {
                    "family": basis.family, "basis": basis.name, "measure": basis.measure, "line": line,
                    "against": reference, "rate": basis.rates[line], "against_rate": basis.rates[reference],
                    "pairs": d.pairs, "difference": d.mean, "difference_low": d.low, "difference_high": d.high,
                    "sd": d.sd, "least": d.least, "verdict": d.verdict,
                }
            )  # fmt: skip
    return frame(rows, COMPARISONS)


def bases(runs: pd.DataFrame) -> Iterator[Basis]:
    """What `measured` returned by family: at each rate, the one with most runs first, and, where there are several,
    each line at its best; at the end and in equal time."""
    best = best_rates(runs)
    for family, own in runs.groupby("family", sort=False):
        rates = common_rates(own)
        chosen = [({line: rate for line in own["line"].unique()}, named(rate)) for rate in rates]
        if len(rates) > 1:
            chosen.append(({line: best[family, line] for line in own["line"].unique()}, BEST))
        for rate_of, name in chosen:
            for measure, column in ((END, "accuracy"), (EQUAL_TIME, "in_time")):
                accuracy = {
                    line: same.groupby("seeds", sort=False)[column].mean()
                    for line, rate in rate_of.items()
                    if len(same := at(own[own["line"] == line], rate))
                }
                yield Basis(family, name, measure, accuracy, rate_of, name == named(rates[0]))


def common_rates(runs: pd.DataFrame) -> list[float]:
    """The rates of one family: that at which most lines ran first, then most runs, then that of the best accuracy."""
    own = {rate: at(runs, rate) for rate in sorted(runs["rate"].unique())}
    return sorted(own, key=lambda r: (-own[r]["line"].nunique(), -len(own[r]), -own[r]["accuracy"].mean()))


def best_rates(runs: pd.DataFrame) -> dict[tuple[str, str], float]:
    """{(family, line): the rate of the largest mean accuracy over seeds, the smallest of several}."""
    mean = runs.groupby(["family", "line", "rate"], dropna=False)["accuracy"].mean().reset_index()
    mean = mean.sort_values(["accuracy", "rate"], ascending=[False, True], kind="stable")
    first = mean.drop_duplicates(["family", "line"])
    return {(row.family, row.line): row.rate for row in first.itertuples(index=False)}


def reference_of(runs: pd.DataFrame, line: str) -> str | None:
    """What `line` is compared with among the `runs` of its family: a line whose wire loses nothing, over such links, on
    as many ranks and under the same guarantee where there is one, else that with most runs; None where there is none.
    """
    own = runs[runs["line"] == line].iloc[0]
    for wire in WIDEST:
        same = runs[runs["wire"] == wire]
        if len(same):
            ranked = same.assign(
                ranks=same["ranks"] == own["ranks"], guarantee=same["guarantee"] == own["guarantee"],
                emulated=same["emulated"] == own["emulated"], many=same.groupby("line")["run"].transform("size"),
            )  # fmt: skip
            keys = ["emulated", "ranks", "guarantee", "many"]
            return ranked.sort_values(keys, ascending=False, kind="stable")["line"].iloc[0]
    return None


def named(rate: float) -> str:
    """`rate 0.05`; `all runs` where none was recorded."""
    return f"rate {rate:g}" if rate == rate else "all runs"


def at(runs: pd.DataFrame, rate: float) -> pd.DataFrame:
    return runs[runs["rate"].isna() if rate != rate else runs["rate"] == rate]
