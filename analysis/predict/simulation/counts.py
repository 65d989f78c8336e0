"""Predicts the number of iterations by a power law of the size, and changes a program to that number.

An application that iterates inside its steps records the number (a value whose name ends in `iterations`). With runs of
two sizes or more, least squares in logarithms fits n = c size^a to the mean number per step. With more than two runs,
Student's distribution gives a prediction interval. An iteration is the interval between successive ends of a wait that
occurs once per iteration, or once more in each solve, in every step.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.stats import t as student

from analysis.predict.reading.skeleton import Skeleton

FEWEST_RATIO, MOST_RATIO = 1e-3, 1e3  # limits for lengthening or shortening a program
Node = tuple[int, bool, bool]


@dataclass(frozen=True)
class Law:
    """n = exp(`constant`) size^`exponent`, evaluated at one size: `count`; `error`, the standard deviation of the
    logarithm of a new count; `freedom`, its degrees of freedom, 0 for two counts; `outside` the fitted sizes."""

    constant: float
    exponent: float
    count: float
    error: float
    freedom: int
    outside: bool

    @property
    def interval(self) -> tuple[float, float]:
        """The 80 % prediction interval of the count; infinite without freedom."""
        if not self.freedom:
            return 0.0, math.inf
        off = float(student.ppf(0.9, self.freedom)) * self.error
        return self.count * math.exp(-off), self.count * math.exp(off)


def power_law(sizes: Sequence[float], counts: Sequence[float], at: float) -> Law | None:
    """The law fitted to `counts` (n,) above 0 at `sizes` (n,), for the size `at`; None for fewer than two sizes."""
    x, y = np.log(np.asarray(sizes, float)), np.log(np.asarray(counts, float))
    if len(set(x.tolist())) < 2:
        return None
    centre, spread = x.mean(), float(((x - x.mean()) ** 2).sum())
    exponent = float(((x - centre) * y).sum()) / spread
    constant = float(y.mean() - exponent * centre)
    freedom, new = len(x) - 2, math.log(at)
    left = float(((y - constant - exponent * x) ** 2).sum())
    error = math.sqrt(left / freedom * (1 + 1 / len(x) + (new - centre) ** 2 / spread)) if freedom else 0.0
    outside = not x.min() - 1e-9 <= new <= x.max() + 1e-9
    return Law(constant, exponent, math.exp(constant + exponent * new), error, freedom, outside)


def mean_count(run: Skeleton) -> float:
    """Mean iterations per step of a run; 0 if it recorded none."""
    return float(np.mean([sum(run.iterations.get(step, ())) for step in run.steps.tolist()]))


def law_of(runs: Sequence[Skeleton], work: float) -> Law | None:
    """The law of the iterations of `runs`, at the size `work`; None if fewer than two sizes recorded iterations."""
    known = [(run.work, count) for run in runs if (count := mean_count(run)) > 0]
    return power_law([size for size, _ in known], [count for _, count in known], work) if known else None


def nothing_iterates(runs: Sequence[Skeleton]) -> bool:
    """Whether runs of two sizes or more recorded no iterations and have equally many waits per step. The cost of a
    segment then includes iterations without waits."""
    waits = {len(run.waits) / len(run.steps) for run in runs}
    return len(waits) == 1 < len({run.work for run in runs}) and not any(map(mean_count, runs))


def iterated(program: Skeleton, ratio: float) -> tuple[Skeleton, float] | None:
    """(the program with `ratio` times as many iterations, their share of its work); None if no wait occurs once per
    iteration, or if iterations overlap."""
    name = _anchor(program)
    if name is None:
        return None
    names, steps = program.waits["name"].tolist(), program.waits["step"].tolist()
    by_step: dict[int, list[Node]] = {}
    for node in program.order:
        by_step.setdefault(steps[node[0]], []).append(node)
    slices = {step: _slices(order, names, name) for step, order in by_step.items()}
    common = Counter(_shape(by_step[step][a:b], names) for step, own in slices.items() for a, b in own)
    if not common:
        return None
    body = common.most_common(1)[0][0]
    rows: list[int] = []  # the old row of each new wait
    order: list[Node] = []
    owed, inside = 0.0, set()
    for step, nodes in by_step.items():
        own = [(a, b) for a, b in slices[step] if _shape(nodes[a:b], names) == body]
        inside |= {nodes[k][0] for a, b in own for k in range(a, b)}
        owed += (ratio - 1.0) * sum(program.iterations.get(step, ()))
        more = max(round(owed), -len(own)) if own else 0
        owed -= more
        times = _times(len(own), more)
        at = 0
        for (a, b), count in zip(own, times, strict=True):
            _append(nodes[at:a], rows, order)
            for _ in range(count):
                _append(nodes[a:b], rows, order)
            at = b
        _append(nodes[at:], rows, order)
    segments = program.segments
    places = segments.groupby("wait").indices
    found = [places.get(old, np.zeros(0, int)) for old in rows]
    took = np.concatenate([np.flatnonzero(segments["wait"] < 0), *found]).astype(int)
    tails = int((segments["wait"] < 0).sum())
    moved = segments.iloc[took].reset_index(drop=True)
    moved["wait"] = np.append(
        np.full(tails, -1), np.repeat(np.arange(len(rows)), [len(each) for each in found])
    )
    waits = program.waits.iloc[rows].reset_index(drop=True)
    new = replace(program, waits=waits, order=order, segments=moved)
    of_iterations = moved["wait"].isin([k for k, old in enumerate(rows) if old in inside])
    whole = float(moved["ns"].sum())
    return new, float(moved.loc[of_iterations, "ns"].sum()) / whole if whole else 0.0


def _anchor(program: Skeleton) -> str | None:
    """The name of a wait that occurs once per iteration, or once more in every solve, as before its first iteration."""
    if not program.iterations or program.waits.empty:
        return None
    counts = program.waits.groupby(["name", "step"]).size()
    solves = [(step, program.iterations.get(step, ())) for step in program.steps.tolist()]
    for name in dict.fromkeys(program.waits["name"].tolist()):
        own = counts[name].to_dict()
        more = [own.get(step, 0) - sum(of) for step, of in solves]
        if not any(more) or more == [len(of) for _, of in solves]:
            return name
    return None


def _slices(nodes: list[Node], names: list[str], name: str) -> list[tuple[int, int]]:
    """(first, last + 1) places of nodes after one end of the anchor up to its next end, if all waits in between both
    post and end there."""
    ends = [k + 1 for k, (row, _, over) in enumerate(nodes) if over and names[row] == name]
    found = []
    for a, b in pairwise(ends):
        posts = Counter(row for row, posted, _ in nodes[a:b] if posted)
        if posts == Counter(row for row, _, over in nodes[a:b] if over):
            found.append((a, b))
    return found


def _shape(nodes: list[Node], names: list[str]) -> tuple:
    return tuple((names[row], posts, over) for row, posts, over in nodes)


def _times(slices: int, more: int) -> list[int]:
    """How often to repeat each of `slices` slices for `more` additional ones in total; `more` may be negative."""
    if not slices:
        return []
    edges = [(k * (slices + more)) // slices for k in range(slices + 1)]
    return [after - before for before, after in pairwise(edges)]


def _append(nodes: Sequence[Node], rows: list[int], order: list[Node]) -> None:
    """Appends nodes whose waits begin among them, or began in an earlier call."""
    places: dict[int, int] = {}
    for row, posts, over in nodes:
        if posts:
            places[row] = len(rows)
            rows.append(row)
        place = places.get(row)
        if place is None:  # posted before
            place = len(rows) - 1 - rows[::-1].index(row)
        order.append((place, posts, over))
