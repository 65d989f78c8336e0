"""The verdict: for each group of runs, whether its bits are what its guarantee promises.

Nothing is concluded from runs that lack rows which they must have (`analysis.divergence.recorded`), nor from a
comparison of runs in different environments, for which nothing is promised (`analysis.environment`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from analysis.divergence.compare import Comparison, Lone, Point, against_first
from analysis.environment import by_environment, several
from analysis.groups import SPANS_LAYOUTS, grouped, ranks_text
from analysis.load.frames import Frames
from analysis.power import bounded, power_note
from analysis.runs import ids, label
from analysis.variability import outcomes

# What can be said of a group, and whether it breaks a promise.
HOLDS, BROKEN, DIFFERS, SAME, UNTESTED = "holds", "BROKEN", "differs", "no difference seen", "not tested"
INCOMPARABLE, OUTSIDE = "not comparable", "other environment"
MEANING = {
    HOLDS: "the guarantee promises equal bits, and all runs have them",
    BROKEN: "the guarantee promises equal bits, and the runs differ",
    DIFFERS: "nothing was promised, and the runs differ",
    SAME: "nothing was promised, and no difference was seen in so few runs",
    INCOMPARABLE: "a run lacks records that it must have, so that nothing can be said",
    OUTSIDE: "the promise is for one environment, and the runs are of several",
    UNTESTED: "fewer than two complete runs that can be compared",
}
URGENT = (BROKEN, DIFFERS, INCOMPARABLE, OUTSIDE)  # of several verdicts of the cells of a group, the first
DAMAGED = ("unreadable", "missing ranks", "damaged result")  # what is left of these can be used
FIRST = (BROKEN, INCOMPARABLE, OUTSIDE)  # groups that are told before the others


@dataclass(frozen=True)
class Cell:
    """Runs that are judged against each other: `runs` complete ones on `sizes` ranks with `distinct` results
    (0 where nothing was recorded to compare), of `environments` in the sense of the guarantee, which differ in what
    `apart` says. `first` is the earliest divergence of any of them from the first run of its environment, where there
    is none from the first run; `within` is whether runs of one environment differ. `lacking` cannot be compared, and
    of `least` the least part was in both."""

    label: str
    guarantee: str
    sizes: tuple[int, ...]
    runs: int
    distinct: int
    first: Comparison | None
    within: bool = False
    lacking: Comparison | None = None
    least: Comparison | None = None
    environments: int = 1
    apart: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether any bit of two runs differs, at the end or on the way."""
        return self.distinct > 1 or self.first is not None

    @property
    def verdict(self) -> str:
        """One of the keys of MEANING."""
        if self.within:
            return DIFFERS if self.guarantee == "none" else BROKEN
        if self.lacking:
            return INCOMPARABLE
        if self.apart:
            return OUTSIDE
        if self.runs < 2 or not self.distinct:
            return UNTESTED
        return SAME if self.guarantee == "none" else HOLDS


@dataclass(frozen=True)
class Group:
    """One row of the table of groups. `state` is the hash of the final state where all complete runs agree
    in it, empty otherwise; `incomplete` runs are in none of the counts."""

    label: str
    guarantee: str
    ordering: str
    sizes: tuple[int, ...]
    runs: int
    incomplete: int
    distinct: int
    state: str
    cells: tuple[Cell, ...]

    @property
    def verdict(self) -> str:
        """One of the keys of MEANING: the gravest of the cells; where none is grave, that of those with two runs."""
        verdicts = [cell.verdict for cell in self.cells]
        for verdict in (*URGENT, HOLDS, SAME):
            if verdict in verdicts:
                return verdict
        return UNTESTED

    @property
    def tested(self) -> int:
        """How many runs were compared: those of cells that have two or more. Where none differs, 1 - 0.05 ** (1 / n)
        of them bounds p; over several cells it bounds the mean of p over runs, since log(1 - p) is concave."""
        return sum(cell.runs for cell in self.cells if cell.runs > 1 and cell.distinct)

    @property
    def first(self) -> Comparison | None:
        """The earliest divergence in any cell."""
        comparisons = [cell.first for cell in self.cells if cell.first]
        return min(comparisons, key=lambda comparison: comparison.when, default=None)


def judge(frames: Frames) -> list[Group]:
    """All groups of the runs, in the order of `grouped`; incomplete runs count for nothing but are
    counted."""
    runs = grouped(frames.runs)
    groups = []
    for name, members in runs.groupby("group", sort=False):
        complete = members[members["complete"]]
        results = (outcomes(frames, complete) if len(complete) else None) or []
        states = set(complete["state"]) - {""}
        one = len(states) == 1 and (complete["state"] != "").all()
        groups.append(
            Group(
                name, members["guarantee"].iloc[0], members["ordering"].iloc[0],
                tuple(sorted(set((complete if len(complete) else members)["size"].tolist()))),
                len(complete), len(members) - len(complete),
                len(set(results)), states.pop() if one else "",
                tuple(cell_of(frames, cell, same) for cell, same in complete.groupby("cell", sort=False)),
            )
        )  # fmt: skip
    return groups


def sentence(groups: list[Group], frames: Frames, decisions: Iterable[tuple[str, str, str]] = ()) -> str:
    """The verdict on one line: broken promises first, then every group, then the `decisions` that changed (name,
    verdict, words), then what was left out."""
    if not groups:
        return "No usable run: nothing can be said."
    parts = [f"{group.label}: {clause(group)}" for group in by_weight(groups)]
    parts += [f"{name}: {words}" for name, _, words in decisions] + doubts(frames, groups)
    return f"{counted(len(groups), 'group')}: {'; '.join(parts)}."


def by_weight(groups: list[Group]) -> list[Group]:
    """Broken promises first, then what cannot be judged, the others in their order."""
    order = {verdict: place for place, verdict in enumerate(FIRST)}
    return sorted(groups, key=lambda group: order.get(group.verdict, len(order)))


def doubts(frames: Frames, groups: Iterable[Group]) -> list[str]:
    """What limits the verdict: groups with runs that lack records, runs that were left out, runs with damaged files,
    and runs whose ranks contradict each other."""
    sentences = []
    if lacking := sum(any(cell.lacking for cell in group.cells) for group in groups):
        sentences.append(f"{counted(lacking, 'group')} with runs that lack records")
    excluded = frames.excluded
    if left_out := set(excluded["run"]) - set(frames.runs["run"]):
        sentences.append(f"{counted(len(left_out), 'run')} left out")
    damaged = set(excluded[excluded["what"].isin(DAMAGED)]["run"]) & set(frames.runs["run"])
    if damaged:
        sentences.append(f"{counted(len(damaged), 'run')} with damaged or missing files")
    if disagree := excluded[excluded["what"] == "ranks disagree"]["run"].nunique():
        sentences.append(f"ranks of {counted(disagree, 'run')} disagree about what they hold in common")
    return sentences


def counted(count: int, noun: str) -> str:
    """`1 run`, `3 runs`."""
    return f"{count} {noun}{'s' if count != 1 else ''}"


def clause(group: Group) -> str:
    """What is to be said of one group, without its name."""
    verdict = group.verdict
    if verdict == UNTESTED:
        if not group.runs:
            return f"no complete run ({group.incomplete} incomplete)"
        if any(cell.runs > 1 for cell in group.cells):
            return f"{counted(group.runs, 'run')} recorded nothing in common to compare"
        return f"{counted(group.runs, 'run')} on {ranks(group.sizes)}: nothing to compare with"
    if verdict == INCOMPARABLE:
        cell, comparison = next(
            (cell, cell.lacking) for cell in group.cells if cell.verdict == verdict and cell.lacking
        )
        return f"{counted(cell.runs, 'run')} on {ranks(cell.sizes)} cannot be compared: {lacks(comparison)}"
    if verdict == OUTSIDE:
        return _outside(next(cell for cell in group.cells if cell.verdict == OUTSIDE))
    if verdict in (HOLDS, SAME):
        text = f"{counted(group.runs, 'run')} on {ranks(group.sizes)}: {_one_hash(group)}"
        if part := min((c.least for c in group.cells if c.least), key=lambda c: c.compared, default=None):
            text += f" {in_both(part)}"
        known = power_note(group.tested) if verdict == SAME else bounded(group.tested)
        several = sum(cell.runs > 1 for cell in group.cells) > 1
        return f"{text} ({known}{', mean over rank counts' if several else ''})"
    several = len([cell for cell in group.cells if cell.runs > 1]) > 1
    parts = []
    for cell in group.cells:
        if cell.verdict == verdict:
            where = f" on {ranks(cell.sizes)}" if several or group.guarantee in SPANS_LAYOUTS else ""
            parts.append(_count(cell) + where)
    at = f", first at {place(group.first.part)}" if group.first else ""
    return ("BROKEN: " if verdict == BROKEN else "") + ", ".join(parts) + at


def place(point: Point | Lone) -> str:
    """`step 2, vorticity, block 17`."""
    block = f", block {point.block}" if point.block >= 0 else ""
    again = f", record {point.occurrence + 1} of this step" if point.occurrence else ""
    return f"step {point.step}, {point.name}{block}{again}"


def lacks(comparison: Comparison) -> str:
    """`b:0 lacks 278 of the 282 records of a:0, the first at step 0, vorticity, block 0`, and what to do."""
    parts = []
    for run, count, other, total in (
        (comparison.a, comparison.lacks_a, comparison.b, comparison.compared + comparison.only_b),
        (comparison.b, comparison.lacks_b, comparison.a, comparison.compared + comparison.only_a),
    ):
        if count:
            own = comparison.compared + (comparison.only_a if run == comparison.a else comparison.only_b)
            parts.append(f"{label(run)} ({own:,} records) lacks {count:,} of the {total:,} of {label(other)}")
    lone = comparison.lone
    where = f"; the first that only {label(lone.run)} has is at {place(lone)}" if lone else ""
    return f"{' and '.join(parts)}{where}. Copy the runs again, or repeat them"


def in_both(comparison: Comparison) -> str:
    """`in what both recorded (37 of 222 and 37 records)`."""
    a, b = comparison.compared + comparison.only_a, comparison.compared + comparison.only_b
    why = f"; {', '.join(comparison.recordings)}" if comparison.recordings else ""
    return f"in what both recorded ({comparison.compared:,} of {a:,} and {b:,} records{why})"


def _outside(cell: Cell) -> str:
    """What is said of a cell whose runs are of several environments."""
    bits = f"{cell.distinct} distinct results" if cell.distinct > 1 else "one hash"
    if cell.distinct == 1 and cell.first:
        bits = "one result, but differ on the way"
    at = f", first at {place(cell.first.part)}" if cell.first else ""
    where = f"{cell.environments} environments" if cell.environments > 1 else "an environment that is not one"
    return (
        f"{counted(cell.runs, 'run')} on {ranks(cell.sizes)} in {where}, for which nothing is promised "
        f"({', '.join(cell.apart)}): {bits if cell.distinct else 'nothing to compare'}{at}"
    )


def ranks(sizes: tuple[int, ...]) -> str:
    """`1, 2, 4 ranks`."""
    return ranks_text(sizes[0]) if len(sizes) == 1 else f"{', '.join(map(str, sizes))} ranks"


def _one_hash(group: Group) -> str:
    tested = [cell for cell in group.cells if cell.runs > 1]
    if len(group.cells) == 1 or group.distinct == 1:
        return "one hash"
    untested = len(group.cells) - len(tested)
    more = f" ({counted(untested, 'rank count')} with one run only)" if untested else ""
    return f"one hash per rank count{more}"


def _count(cell: Cell) -> str:
    if cell.distinct == cell.runs:
        return f"{cell.runs} of {cell.runs} runs differ"
    if cell.distinct > 1:
        return f"{cell.distinct} distinct results in {cell.runs} runs"
    return f"{cell.runs} runs end in one result but differ on the way"


def cell_of(frames: Frames, name: str, members: pd.DataFrame) -> Cell:
    """Complete runs, rows of `grouped`, judged against each other: under a guarantee those of one environment, and all
    of them for what is to be said of several."""
    guarantee = members["guarantee"].iloc[0]
    results = outcomes(frames, members) or []
    environments = [members.iloc[places] for places in by_environment(members, guarantee)]
    comparisons, within = [], False
    for same in environments:
        pairs = against_first(frames, ids(same))
        ends = results if len(environments) == 1 else outcomes(frames, same) or []
        whole = all(pair.comparable for pair in pairs)
        within |= any(pair.differs for pair in pairs) or (whole and len(set(ends)) > 1)
        comparisons += pairs
    if len(environments) > 1 and not within:
        comparisons += against_first(frames, [ids(same)[0] for same in environments])
    differing = [pair for pair in comparisons if pair.differs]
    partial = [pair for pair in comparisons if pair.equal and (pair.only_a or pair.only_b)]
    return Cell(
        name, guarantee, tuple(sorted(set(members["size"].tolist()))), len(members), len(set(results)),
        min(differing, key=lambda pair: pair.when, default=None), within,
        next((pair for pair in comparisons if not pair.comparable), None),
        min(partial, key=lambda pair: pair.compared, default=None),
        len(environments), tuple(several(members, guarantee)),
    )  # fmt: skip
