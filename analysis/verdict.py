"""The verdict: for each group of runs, whether its bits are what its guarantee promises.

Nothing is concluded from runs that lack rows which they must have (`analysis.divergence.recorded`), nor from a
comparison of runs in different environments, for which nothing is promised (`analysis.environment`). A replay and a run
with an injected fault are compared with a run of another group too (`analysis.counterparts`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pandas as pd

from analysis.attempts import repeated
from analysis.counterparts import FAULT, REPLAY, Counterpart, counterpart
from analysis.divergence.cause import COLLECTIVE, ENVIRONMENT, METHOD, Cause, cause
from analysis.divergence.compare import Comparison, Lone, Point, against_first
from analysis.environment import by_environment, several
from analysis.groups import SPANS_LAYOUTS, grouped, ranks_text
from analysis.load.frames import Frames
from analysis.power import unseen
from analysis.runs import ids, label
from analysis.variability import outcomes

# What can be said of a group, and whether it breaks a promise.
HOLDS, BROKEN, DIFFERS, SAME, UNTESTED = "holds", "BROKEN", "differs", "no difference seen", "not tested"
INCOMPARABLE, OUTSIDE, FAILED = "not comparable", "other environment", "failed"
MEANING = {
    FAILED: "a run ended with an error, or its results failed a check of its own",
    HOLDS: "the guarantee promises equal bits, and all runs have them",
    BROKEN: "the guarantee promises equal bits, and the runs differ",
    DIFFERS: "nothing was promised, and the runs differ",
    SAME: "nothing was promised, and no difference was seen in so few runs",
    INCOMPARABLE: "a run lacks records that it must have, so that nothing can be said",
    OUTSIDE: "the promise is for one environment, and the runs are of several",
    UNTESTED: "fewer than two complete runs that can be compared",
}
URGENT = (BROKEN, DIFFERS, INCOMPARABLE, OUTSIDE)  # of several verdicts of the cells of a group, the first
WORST_FIRST = (FAILED, BROKEN, INCOMPARABLE, OUTSIDE, DIFFERS, HOLDS, SAME, UNTESTED)
FAILURES = ("check failed", "failed")  # what is said of runs that make a group FAILED
NOTHING = ": nothing to compare with"  # what is said of a run that is alone
RANKS = "number of ranks"  # a cause that only the comparison of rank counts can have
DAMAGED = ("unreadable", "missing ranks", "damaged result")  # what is left of these can be used


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
    """One row of the table of groups. `words` is its label for people, `state` the hash of the final state where all
    complete runs agree in it, empty otherwise; `incomplete` runs are in none of the counts. `failures`: what its runs
    say of themselves that failed, as text. `across` is where the runs of two rank counts part between which nothing is
    promised, `beside` the comparison with runs of another group; `cause` is that of the difference `shown`."""

    label: str
    words: str
    guarantee: str
    ordering: str
    sizes: tuple[int, ...]
    runs: int
    incomplete: int
    distinct: int
    state: str
    cells: tuple[Cell, ...]
    failures: tuple[str, ...] = ()
    across: Comparison | None = None
    beside: Counterpart | None = None
    cause: Cause | None = None

    @property
    def verdict(self) -> str:
        """One of the keys of MEANING: FAILED where a run says so, else what the bits say."""
        return FAILED if self.failures else self.bits

    @property
    def bits(self) -> str:
        """The gravest verdict of the cells and of the comparison with another group; where none is grave, that of cells
        with two runs; DIFFERS where only the rank counts could be compared, and differ."""
        verdicts = [cell.verdict for cell in self.cells] + (
            [_of_counterpart(self.beside)] if self.beside else []
        )
        for verdict in (*URGENT, HOLDS, SAME):
            if verdict in verdicts:
                if verdict == SAME and self.across:
                    return DIFFERS
                return verdict
        return DIFFERS if self.across else UNTESTED

    @property
    def why(self) -> str:
        """The cause of the difference in two or three words; empty where nothing differs or no cause is known."""
        if self.shown and self.beside and self.beside.kind == FAULT and self.shown is self.beside.first:
            return f"injected fault {self.beside.given}"
        if self.cause is None:
            return ""
        return RANKS if self.shown is self.across and self.cause.kind == COLLECTIVE else self.cause.kind

    @property
    def sure(self) -> bool:
        """Whether the evidence leaves no other cause than `why`."""
        if self.cause is None or self.cause.kind in (METHOD, ENVIRONMENT) or self.why.startswith("injected"):
            return True
        return not self.cause.instead

    @property
    def shown(self) -> Comparison | None:
        """The difference that is spoken of: in a cell, else from another group, else across rank counts."""
        return self.first or (self.beside.first if self.beside else None) or self.across

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
    failed = failures(frames)
    groups = []
    for name, members in runs.groupby("group", sort=False):
        complete = members[members["complete"]]
        results = (outcomes(frames, complete) if len(complete) else None) or []
        states = set(complete["state"]) - {""}
        one = len(states) == 1 and (complete["state"] != "").all()
        cells = tuple(cell_of(frames, cell, same) for cell, same in complete.groupby("cell", sort=False))
        distinct = len(set(results)) or max((cell.distinct for cell in cells), default=0)
        across = _across(frames, complete, cells) if distinct > 1 else None
        beside = counterpart(frames, runs, complete)
        group = Group(
            name, members["words"].iloc[0], members["guarantee"].iloc[0], members["ordering"].iloc[0],
            tuple(sorted(set((complete if len(complete) else members)["size"].tolist()))),
            len(complete), len(members) - len(complete), distinct, states.pop() if one else "", cells,
            tuple(text for run in members["run"].unique() for text in failed.get(run, ())),
            across, beside,
        )  # fmt: skip
        groups.append(replace(group, cause=cause(frames, group.shown)) if group.shown else group)
    return groups


def failures(frames: Frames) -> dict[str, list[str]]:
    """{run: what failed in it by its own account}: `f/bad: check poisson failed: 24 of 37 solves ...`; without attempts
    that were repeated with success."""
    failed: dict[str, list[str]] = {}
    again = repeated(frames)
    for run, what, path, reason, _ in frames.excluded.itertuples(index=False):
        if what in FAILURES and run not in again:
            failed.setdefault(run, []).append(f"{run}: {reason.removeprefix(f'{path}: ')}")
    return failed


def _across(frames: Frames, complete: pd.DataFrame, cells: tuple[Cell, ...]) -> Comparison | None:
    """Where the first runs of two rank counts part, between which nothing is promised; None where they do not, or
    where a promise spans rank counts."""
    if complete["guarantee"].iloc[0] in SPANS_LAYOUTS or len(cells) < 2:
        return None
    pairs = against_first(frames, ids(complete.drop_duplicates("cell")))
    return min((pair for pair in pairs if pair.differs), key=lambda pair: pair.when, default=None)


def _of_counterpart(beside: Counterpart) -> str:
    """What the comparison with runs of another group says: a replay promises the bits of its source."""
    if beside.apart and beside.first:
        return OUTSIDE
    if beside.first:
        return BROKEN if beside.kind == REPLAY else DIFFERS
    if beside.lacking:
        return INCOMPARABLE
    return HOLDS if beside.kind == REPLAY else SAME


def by_weight(groups: Iterable[Group]) -> list[Group]:
    """The worst verdict first, groups of one verdict in their order."""
    return sorted(groups, key=lambda group: WORST_FIRST.index(group.verdict))


def doubts(frames: Frames, groups: Iterable[Group]) -> list[str]:
    """What limits the verdict: groups with runs that lack records, attempts that were repeated, runs that were left
    out, runs with damaged files, and runs whose ranks contradict each other."""
    sentences = []
    if lacking := sum(any(cell.lacking for cell in group.cells) for group in groups):
        sentences.append(f"{counted(lacking, 'group')} with runs that lack records")
    excluded = frames.excluded
    if again := repeated(frames):
        sentences.append(f"{counted(len(again), 'failed attempt')} repeated with success")
    if left_out := set(excluded["run"]) - set(frames.runs["run"]) - set(again):
        sentences.append(f"{counted(len(left_out), 'run')} left out")
    damaged = set(excluded[excluded["what"].isin(DAMAGED)]["run"]) & set(frames.runs["run"])
    if damaged:
        sentences.append(f"{counted(len(damaged), 'run')} with damaged or missing files")
    if disagree := excluded[excluded["what"] == "ranks disagree"]["run"].nunique():
        sentences.append(f"ranks of {counted(disagree, 'run')} disagree about what they hold in common")
    return sentences


def counted(count: int, noun: str, several: str = "") -> str:
    """`1 run`, `3 runs`; `several` is the plural where it is not made by an s."""
    return f"{count} {noun if count == 1 else several or f'{noun}s'}"


def clause(group: Group) -> str:
    """What is to be said of one group, without its name."""
    return "; ".join(filter(None, (*group.failures, _of_bits(group), _of_beside(group))))


def _of_bits(group: Group) -> str:
    """What the runs of a group say of each other."""
    verdicts = {cell.verdict for cell in group.cells}
    verdict = next((each for each in (*URGENT, HOLDS, SAME) if each in verdicts), UNTESTED)
    if verdict == UNTESTED:
        return _untested(group)
    if verdict == INCOMPARABLE:
        cell, comparison = next(
            (cell, cell.lacking) for cell in group.cells if cell.verdict == verdict and cell.lacking
        )
        return f"{counted(cell.runs, 'run')} on {ranks(cell.sizes)} cannot be compared: {lacks(comparison)}"
    if verdict == OUTSIDE:
        return _outside(next(cell for cell in group.cells if cell.verdict == OUTSIDE))
    if verdict in (HOLDS, SAME):
        return _equal(group)
    several = len([cell for cell in group.cells if cell.runs > 1]) > 1
    parts = []
    for cell in group.cells:
        if cell.verdict == verdict:
            where = f" on {ranks(cell.sizes)}" if several or group.guarantee in SPANS_LAYOUTS else ""
            parts.append(_count(cell) + where)
    promised = "equal bits were promised, but " if verdict == BROKEN else ""
    at = f", first at {place(group.first.part)}" if group.first else ""
    return f"{promised}{', '.join(parts)}{at}{_cause(group, group.first)}"


def _untested(group: Group) -> str:
    """What is said of runs of which no two are of one cell."""
    if not group.runs:
        return f"no complete run ({group.incomplete} incomplete)"
    if any(cell.runs > 1 for cell in group.cells):
        return f"{counted(group.runs, 'run')} recorded nothing in common to compare"
    runs = f"{counted(group.runs, 'run')} on {ranks(group.sizes)}"
    if group.across:
        return f"{runs}: {_apart_by_ranks(group, group.across)}"
    return "" if group.beside else f"{runs}{NOTHING}"


def _equal(group: Group) -> str:
    """What is said where no cell holds two runs that differ."""
    text = f"{counted(group.runs, 'run')} on {ranks(group.sizes)} gave {_one_result(group)}"
    if part := min((c.least for c in group.cells if c.least), key=lambda c: c.compared, default=None):
        text += f" {in_both(part)}"
    text += f" ({unseen(group.tested)})"
    if group.across:
        text += f"; {_apart_by_ranks(group, group.across)}"
    return text


def _apart_by_ranks(group: Group, across: Comparison) -> str:
    return (
        f"{group.distinct} different results on different numbers of ranks, between which nothing is promised, "
        f"first at {place(across.part)}{_cause(group, across)}"
    )


def _cause(group: Group, of: Comparison | None) -> str:
    """`; cause: message order (scalars, step 0)`; empty where that of the difference `of` is not known."""
    if group.cause is None or of is not group.shown:
        return ""
    who = "" if group.cause.rank is None else f" on rank {group.cause.rank}"
    cause_of = "cause" if group.sure else "probable cause"
    return f"; {cause_of}: {group.why} ({group.cause.name}{who}, step {group.cause.step})"


def _of_beside(group: Group) -> str:
    """What is said of runs that are compared with those of another group."""
    beside = group.beside
    if beside is None:
        return ""
    relation = "the run that it replays" if beside.kind == REPLAY else "the run without the fault"
    if beside.lacking:
        return f"cannot be compared with {relation}: {lacks(beside.lacking)}"
    if beside.first is None:
        return f"the same bits as {relation}, {label(beside.source)}"
    outside = f" in another environment ({', '.join(beside.apart)})" if beside.apart else ""
    at = f"first at {place(beside.first.part)}{_cause(group, beside.first)}"
    return f"other bits than {relation}{outside}, {label(beside.source)}, {at}"


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
    bits = f"{cell.distinct} different results" if cell.distinct > 1 else "the same bits"
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


def _one_result(group: Group) -> str:
    """`the same bits`, where rank counts are judged apart with what that is over."""
    if len(group.cells) == 1 or group.distinct == 1:
        return "the same bits"
    untested = sum(cell.runs < 2 for cell in group.cells)
    more = f" ({counted(untested, 'rank count')} with one run only)" if untested else ""
    return f"the same bits wherever the number of ranks was the same{more}"


def _count(cell: Cell) -> str:
    if cell.distinct == cell.runs:
        return f"{cell.runs} of {cell.runs} runs differ"
    if cell.distinct > 1:
        return f"{cell.distinct} different results in {cell.runs} runs"
    if not cell.distinct:  # nothing of a result was recorded, as of programs that run as they are
        return f"{cell.runs} runs differ in what passes through their calls"
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
    # Programs that run as they are record no results, only what passes through their calls.
    distinct = len(set(results)) if results else int(bool(comparisons) and not differing)
    partial = [pair for pair in comparisons if pair.equal and (pair.only_a or pair.only_b)]
    return Cell(
        name, guarantee, tuple(sorted(set(members["size"].tolist()))), len(members), distinct,
        min(differing, key=lambda pair: pair.when, default=None), within,
        next((pair for pair in comparisons if not pair.comparable), None),
        min(partial, key=lambda pair: pair.compared, default=None),
        len(environments), tuple(several(members, guarantee)),
    )  # fmt: skip
