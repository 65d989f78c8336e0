"""The verdict: for each group of runs, whether its bits are what its guarantee promises."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from analysis.divergence.compare import Comparison, NothingInCommon, Point, compare
from analysis.groups import SPANS_LAYOUTS, grouped, ranks_text
from analysis.load.frames import Frames
from analysis.power import bounded, power_note
from analysis.variability import ids, outcomes

# What can be said of a group, and whether it breaks a promise.
HOLDS, BROKEN, DIFFERS, SAME, UNTESTED = "holds", "BROKEN", "differs", "no difference seen", "not tested"
MEANING = {
    HOLDS: "the guarantee promises equal bits, and all runs have them",
    BROKEN: "the guarantee promises equal bits, and the runs differ",
    DIFFERS: "nothing was promised, and the runs differ",
    SAME: "nothing was promised, and no difference was seen in so few runs",
    UNTESTED: "fewer than two complete runs that can be compared",
}


@dataclass(frozen=True)
class Cell:
    """Runs that are judged against each other: `runs` complete ones on `sizes` ranks with `distinct` results
    (0 where nothing was recorded to compare). `first` is the earliest divergence of any of them from the
    first run."""

    label: str
    sizes: tuple[int, ...]
    runs: int
    distinct: int
    first: Comparison | None

    @property
    def differs(self) -> bool:
        """Whether any bit of two runs differs, at the end or on the way."""
        return self.distinct > 1 or self.first is not None


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
        """One of the keys of MEANING."""
        if any(cell.differs for cell in self.cells):
            return DIFFERS if self.guarantee == "none" else BROKEN
        if not any(cell.runs > 1 and cell.distinct for cell in self.cells):
            return UNTESTED
        return SAME if self.guarantee == "none" else HOLDS

    @property
    def tested(self) -> int:
        """How many runs were compared: those of cells that have two or more. Where none differs, 1 - 0.05 ** (1 / n)
        of them bounds p; over several cells it bounds the mean of p over runs, since log(1 - p) is concave."""
        return sum(cell.runs for cell in self.cells if cell.runs > 1 and cell.distinct)

    @property
    def first(self) -> Comparison | None:
        """The earliest divergence in any cell."""
        found = [cell.first for cell in self.cells if cell.first]
        return min(found, key=lambda comparison: comparison.when, default=None)


def verdict_of(guarantee: str, runs: int, distinct: int, differ: bool) -> str:
    """The key of MEANING for `runs` that are judged against each other, with `distinct` results (0: nothing recorded);
    `differ`: any bit of two of them differs, at the end or on the way."""
    if differ:
        return DIFFERS if guarantee == "none" else BROKEN
    if runs < 2 or not distinct:
        return UNTESTED
    return SAME if guarantee == "none" else HOLDS


def judge(frames: Frames) -> list[Group]:
    """All groups of the runs, in the order of `grouped`; incomplete runs count for nothing but are
    counted."""
    runs = grouped(frames.runs)
    groups = []
    for label, members in runs.groupby("group", sort=False):
        complete = members[members["complete"]]
        results = (outcomes(frames, complete) if len(complete) else None) or []
        states = set(complete["state"]) - {""}
        one = len(states) == 1 and (complete["state"] != "").all()
        groups.append(
            Group(
                label, members["guarantee"].iloc[0], members["ordering"].iloc[0],
                tuple(sorted(set(members["size"].tolist()))), len(complete), len(members) - len(complete),
                len(set(results)), states.pop() if one else "",
                tuple(_cell(frames, cell, same) for cell, same in complete.groupby("cell", sort=False)),
            )
        )  # fmt: skip
    return groups


def sentence(groups: list[Group], frames: Frames, decisions: Iterable[tuple[str, str, str]] = ()) -> str:
    """The verdict on one line: broken promises first, then every group, then the `decisions` that changed (name,
    verdict, words), then what was left out."""
    if not groups:
        return "No usable run: nothing can be said."
    parts = [f"{group.label}: {clause(group)}" for group in by_weight(groups)]
    parts += [f"{name}: {words}" for name, _, words in decisions] + doubts(frames)
    return f"{counted(len(groups), 'group')}: {'; '.join(parts)}."


def by_weight(groups: list[Group]) -> list[Group]:
    """Broken promises first, the others in their order."""
    return sorted(groups, key=lambda group: group.verdict != BROKEN)


def doubts(frames: Frames) -> list[str]:
    """What limits the verdict: runs that were left out, and runs whose ranks contradict each other."""
    found = []
    excluded = frames.excluded
    if left_out := set(excluded["run"]) - set(frames.runs["run"]):
        found.append(f"{counted(len(left_out), 'run')} left out")
    if disagree := excluded[excluded["what"] == "ranks disagree"]["run"].nunique():
        found.append(f"ranks of {counted(disagree, 'run')} disagree about what they hold in common")
    return found


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
    if verdict in (HOLDS, SAME):
        text = f"{counted(group.runs, 'run')} on {ranks(group.sizes)}: {_one_hash(group)}"
        known = power_note(group.tested) if verdict == SAME else bounded(group.tested)
        several = sum(cell.runs > 1 for cell in group.cells) > 1
        return f"{text} ({known}{', mean over rank counts' if several else ''})"
    several = len([cell for cell in group.cells if cell.runs > 1]) > 1
    parts = []
    for cell in group.cells:
        if cell.differs:
            where = f" on {ranks(cell.sizes)}" if several or group.guarantee in SPANS_LAYOUTS else ""
            parts.append(_count(cell) + where)
    at = f", first at {place(group.first.first)}" if group.first else ""
    return ("BROKEN: " if verdict == BROKEN else "") + ", ".join(parts) + at


def place(point: Point) -> str:
    """`step 2, vorticity, block 17`."""
    block = f", block {point.block}" if point.block >= 0 else ""
    again = f", record {point.occurrence + 1} of this step" if point.occurrence else ""
    return f"step {point.step}, {point.name}{block}{again}"


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


def _cell(frames: Frames, label: str, members: pd.DataFrame) -> Cell:
    own = ids(members)
    results = outcomes(frames, members)
    first = None
    for other in own[1:]:
        try:
            found = compare(frames, own[0], other)
        except NothingInCommon:
            continue
        if not found.equal and (first is None or found.when < first.when):
            first = found
    sizes = tuple(sorted(set(members["size"].tolist())))
    return Cell(label, sizes, len(own), len(set(results or [])), first)
