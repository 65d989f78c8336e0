"""Groups runs into series of strong or weak scaling, and computes their speedups.

Runs of a *strong* series have the same problem (the hash of the options that define it), guarantee and ordering, the
same factors of the method, and the same values of all other options that may cost time (`groups.conditions`).

Runs of a *weak* series agree in the same way, except in the options that set the size of the problem (effect `size`).
The product of these options is the work; work per rank is the same within TOLERANCE (for a list of sizes, element by
element). It is the work of one step or one iteration: a solver that needs more of them for a larger problem loses
efficiency.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd

from analysis.groups import (
    IN_LABEL,
    UNSET,
    conditions,
    differing_factors,
    effects,
    factors,
    problem_names,
)
from analysis.runs import apart
from analysis.statistics import median_interval, ratio_interval
from analysis.studies.contract import frame
from analysis.verdict import counted
from kernels.as_json import Column

TOLERANCE = 0.01
STRONG, WEAK = "strong", "weak"

OF = {"series": Column("str"), "kind": Column("str", "`strong` or `weak`")}
BASE = Column("int64", "the smallest rank count of the series")
POINTS = {
    **OF, "app": Column("str"), "guarantee": Column("str"), "ordering": Column("str"), "size": Column("int64", "ranks"),
    "run": Column("str"), "repeat": Column("int64"), "path": Column("str"), "wall_s": Column("float64", "", "s"),
    "events": Column("int64", "in its trace"), "base": BASE, "speedup": Column("float64"),
    "efficiency": Column("float64"),
}  # fmt: skip
SPEEDUPS = {
    **OF, "size": Column("int64", "ranks"), "runs": Column("int64"), "median_s": Column("float64", "", "s"),
    "low_s": Column("float64", "", "s"), "high_s": Column("float64", "", "s"), "base": BASE,
    "speedup": Column("float64"), "speedup_low": Column("float64"), "speedup_high": Column("float64"),
    "efficiency": Column("float64"), "efficiency_low": Column("float64"), "efficiency_high": Column("float64"),
}  # fmt: skip


def series(runs: pd.DataFrame, excluded: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """(a row per series and usable (run, repeat) of `runs`, from `grouped`; sentences on unusable runs). The columns
    are POINTS and `apart`: whether its ranks never wait for each other.

    A strong series on a single rank count has speedup 1; a weak series has at least two rank counts. `base` is the
    smallest rank count b of a series, T_b its median time. Strong scaling has speedup b T_b / T, which assumes
    efficiency 1 on b ranks, and efficiency speedup / p. Weak scaling has efficiency T_b / T and scaled speedup
    p T_b / T.
    """
    usable, notes = _usable(runs, excluded)
    usable = usable.reset_index(drop=True)
    stated = zip(usable["method"], usable["options"], strict=True)
    factored = [factors(*each, IN_LABEL) for each in stated]
    usable["apart"] = [apart(*each) for each in zip(usable["reductions"], usable["size"], strict=True)]
    key = ["guarantee", "ordering", "conditions"]
    strong = usable.assign(conditions=conditions(usable, but=IN_LABEL), row=range(len(usable)))
    members = [(STRONG, own["row"].to_numpy()) for _, own in strong.groupby(["problem", *key], sort=False)]
    weak = strong.assign(conditions=conditions(usable, but=IN_LABEL, sized=False))
    weakly = [(WEAK, rows) for _, own in weak.groupby(key, sort=False) for rows in _constant_work(own)]
    # Runs on a single rank count are a strong series, unless they are part of a weak one.
    parts = {row for _, rows in weakly for row in rows.tolist()}
    sizes = usable["size"].to_numpy()
    members = [
        (kind, rows)
        for kind, rows in members
        if len(set(sizes[rows])) > 1 or not parts.issuperset(rows.tolist())
    ]
    members += weakly
    labels = _labels(usable, members, factored)
    pieces = [
        _with_speedup(usable.iloc[rows].assign(series=label, kind=kind))
        for (kind, rows), label in zip(members, labels, strict=True)
    ]
    columns = POINTS | {
        "apart": Column("bool"),
        "path": Column("object"),
    }  # a path may have bytes that are not text
    return frame(pd.concat(pieces, ignore_index=True) if pieces else [], columns), notes


def speedups(points: pd.DataFrame) -> pd.DataFrame:
    """A row per series and rank count; columns SPEEDUPS: medians over runs with 95 % intervals by order statistics.
    Intervals of ratios are by bootstrap of base and runs; NaN for the base and for fewer than 6 runs of either."""
    rows = []
    for (name, kind), own in points.groupby(["series", "kind"], sort=False):
        base = int(own["base"].iloc[0])
        first = own.loc[own["size"] == base, "wall_s"].to_numpy()
        for size, same in own.groupby("size"):
            seconds = same["wall_s"].to_numpy()
            ratio = (1.0, math.nan, math.nan) if size == base else ratio_interval(first, seconds)
            scale = size if kind == WEAK else base
            speedup = np.array(ratio) * scale
            rows.append(
                (name, kind, size, len(same), *median_interval(seconds), base, *speedup, *speedup / size)
            )
    return frame(rows, SPEEDUPS)


def scaled(points: pd.DataFrame) -> pd.DataFrame:
    """The rows of `points` (or `speedups`) whose series has several rank counts."""
    return points[points.groupby("series")["size"].transform("nunique") > 1]


def _usable(runs: pd.DataFrame, excluded: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    jumped = runs["run"].isin(set(excluded.loc[excluded["what"] == "clock", "run"]))
    reasons = (
        (~runs["complete"], "ended early, or lacks ranks"),
        (runs["faulty"], "has an injected fault"),
        (jumped, "is of a node whose clock jumped"),
        (~(runs["wall_s"] > 0), "recorded no times (--trace off)"),
    )
    left, notes = pd.Series(True, index=runs.index), []
    for bad, why in reasons:
        if count := int((left & bad).sum()):
            notes.append(f"{counted(count, 'run')} left out: each {why}")
        left &= ~bad
    return runs[left], notes


def _work(config: str, options: str) -> np.ndarray:
    """The product of the options that set the size of the problem; for lists, a product per element."""
    sections = json.loads(config)
    work = np.ones(1)
    for key in (key for key, effect in effects(options).items() if effect == "size"):
        section, _, name = key.partition(".")
        value = sections.get(section, {}).get(name) if isinstance(sections.get(section), dict) else None
        if value:
            work = work * np.asarray(value, float)
    return work


def _constant_work(own: pd.DataFrame) -> list[np.ndarray]:
    """Sets of values of the column `row` with the same work per rank, on two rank counts or more."""
    columns = (own[name] for name in ("config", "options", "size"))
    each = [_work(config, options) / size for config, options, size in zip(*columns, strict=True)]
    sets: list[tuple[np.ndarray, list[int]]] = []
    for i in sorted(range(len(own)), key=lambda i: (len(each[i]), tuple(each[i]))):
        for first, members in sets:
            if len(first) == len(each[i]) and np.allclose(each[i], first, rtol=TOLERANCE, atol=0.0):
                members.append(i)
                break
        else:
            sets.append((each[i], [i]))
    return [own["row"].to_numpy()[rows] for _, rows in sets if own["size"].iloc[rows].nunique() > 1]


def _labels(usable: pd.DataFrame, members: list, factored: list[dict]) -> list[str]:
    """Unique names of the series `members`, [(kind, rows)]."""
    names = problem_names(usable)
    labels = []
    for kind, rows in members:
        one = usable.iloc[rows[0]]
        base = f"{one['app']} {one['guarantee']}/{one['ordering'].replace(',', '+')}"
        alike = [r[0] for _, r in members if _same_base(usable.iloc[r[0]], one)]
        telling = differing_factors([factored[i] for i in alike])
        extra = [f"{k}={factored[rows[0]][k]}" for k in telling if factored[rows[0]].get(k) not in UNSET]
        if kind == STRONG and names[one["problem"]]:
            extra.append(names[one["problem"]])
        if kind == WEAK:
            extra.append(f"weak, {_plain(_work(one['config'], one['options']) / one['size'])} per rank")
        labels.append(base + (f" ({', '.join(extra)})" if extra else ""))
    return [
        label if labels.count(label) == 1 else f"{label} #{labels[: i + 1].count(label)}"
        for i, label in enumerate(labels)
    ]


def _same_base(a: pd.Series, b: pd.Series) -> bool:
    return all(a[key] == b[key] for key in ("app", "guarantee", "ordering"))


def _plain(work: np.ndarray) -> str:
    return ", ".join(f"{w:.4g}" for w in work[:3]) + (", ..." if len(work) > 3 else "")


def _with_speedup(own: pd.DataFrame) -> pd.DataFrame:
    base = int(own["size"].min())
    ratio = own.loc[own["size"] == base, "wall_s"].median() / own["wall_s"]
    speedup = ratio * (own["size"] if own["kind"].iloc[0] == WEAK else base)
    table = own.assign(base=base, speedup=speedup, efficiency=speedup / own["size"])
    return table.sort_values(["size", "run", "repeat"], kind="stable")
