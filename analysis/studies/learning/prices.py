"""The price of each wire: bytes, time, error of the gradient, accuracy; at one learning rate, and at its best one."""

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
    "edge": Column("bool", "the best rate is the smallest or largest tried"),
}  # fmt: skip
COMPARISONS = {
    "family": Column("str"), "basis": Column("str", "a rate or `best rate`"),
    "measure": Column("str", "`at the end` or `in equal time`"), "line": Column("str"), "against": Column("str"),
    "rate": RATE, "against_rate": RATE, "pairs": Column("int64", "common seeds"),
    "difference": Column("float64", "of accuracies, fractions"), "difference_low": Column("float64"),
    "difference_high": Column("float64"), "sd": Column("float64"),
    "least": Column("float64", "difference detectable with power 80 %"),
    "verdict": Column("str", "`differs`, `no difference seen`, `too few seeds`"),
}  # fmt: skip


@dataclass(frozen=True)
class Basis:
    """A basis of comparison in a `family`: `accuracy` {line: mean over repeats, by seeds}, each line at its rate in
    `rates`; `measure`: END or EQUAL_TIME; `name` of the rates: `rate 0.05`, or BEST; `first`: whether it is the most
    common rate."""

    family: str
    name: str
    measure: str
    accuracy: dict[str, pd.Series]
    rates: dict[str, float]
    first: bool = False


def measured(known: Trainings) -> pd.DataFrame:
    """The complete runs with a column `in_time`: the last accuracy within the time of the family's shortest run, NaN
    without one."""
    runs = known.runs[known.runs["complete"]].copy()
    budget = runs.groupby("family")["seconds"].min()
    curves = known.curves
    early = curves[(curves["seconds"] <= curves["family"].map(budget)).to_numpy()]
    last = early.drop_duplicates(["run", "repeat"], keep="last").set_index(["run", "repeat"])["accuracy"]
    runs["in_time"] = last.reindex(pd.MultiIndex.from_frame(runs[["run", "repeat"]])).to_numpy(np.float64)
    return runs


def prices(known: Trainings) -> pd.DataFrame:
    """A row per family, line and rate; columns PRICES.

    Medians over complete runs, with the range `accuracy_least` to `accuracy_most`. Ratios are to the reference of the
    line at the same rate. `best`: the line's rate with the largest mean accuracy; `edge`: the best rate is the smallest
    or the largest tried, so a better one may exist outside.
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
    """Compares every line with its reference, paired by seeds, a row for each basis; columns COMPARISONS."""
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
    """The bases of comparison of `runs`, from `measured`, by family: each rate, the most common first, and with several
    rates each line at its best; each at the end and in equal time."""
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
    """The rates of one family, sorted by the number of lines, then of runs, then by mean accuracy, largest first."""
    own = {rate: at(runs, rate) for rate in sorted(runs["rate"].unique())}
    return sorted(own, key=lambda r: (-own[r]["line"].nunique(), -len(own[r]), -own[r]["accuracy"].mean()))


def best_rates(runs: pd.DataFrame) -> dict[tuple[str, str], float]:
    """{(family, line): the rate with the largest mean accuracy over seeds, the smallest of several}."""
    mean = runs.groupby(["family", "line", "rate"], dropna=False)["accuracy"].mean().reset_index()
    mean = mean.sort_values(["accuracy", "rate"], ascending=[False, True], kind="stable")
    first = mean.drop_duplicates(["family", "line"])
    return {(row.family, row.line): row.rate for row in first.itertuples(index=False)}


def reference_of(runs: pd.DataFrame, line: str) -> str | None:
    """The line that `line` is compared with among the `runs` of its family, or None: one with a lossless wire. The
    choice prefers the same kind of links, then the same rank count, the same guarantee, and more runs."""
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
    """`rate 0.05`; `all runs` for an unrecorded rate."""
    return f"rate {rate:g}" if rate == rate else "all runs"


def at(runs: pd.DataFrame, rate: float) -> pd.DataFrame:
    return runs[runs["rate"].isna() if rate != rate else runs["rate"] == rate]
