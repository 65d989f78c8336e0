"""Judges for each group of runs whether its bits are as its guarantee promises, and over which records.

There is no verdict on runs that lack rows which they must have (`analysis.divergence.recorded`), on runs without a
common record, or across environments, which guarantees do not cover (`analysis.environment`). A replay and a run with
an injected fault are also compared with a run of another group (`analysis.counterparts`). `analysis.headline` puts the
verdict into words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pandas as pd

from analysis.attempts import repeated
from analysis.counterparts import FAULT, REPLAY, Counterpart, counterpart
from analysis.divergence.among import Among, among
from analysis.divergence.cause import cause
from analysis.divergence.classes import COLLECTIVE, ENVIRONMENT, METHOD, Cause
from analysis.divergence.points import Comparison
from analysis.ends import outcomes
from analysis.environment import by_environment, several
from analysis.groups import SPANS_LAYOUTS, grouped, ranks_text
from analysis.load.frames import Frames
from analysis.runs import Id, ids

# The verdicts on a group.
HOLDS, BROKEN, DIFFERS, SAME, UNTESTED = "holds", "BROKEN", "differs", "no difference seen", "not tested"
INCOMPARABLE, OUTSIDE, FAILED = "not comparable", "other environment", "failed"
MEANING = {
    FAILED: "a run ended with an error, or its results failed a check of its own",
    HOLDS: "the guarantee promises equal bits, and all runs that were compared have them",
    BROKEN: "the guarantee promises equal bits, and the runs differ",
    DIFFERS: "nothing was promised, and the runs differ",
    SAME: "nothing was promised, and no difference was seen in so few runs",
    INCOMPARABLE: "a run lacks records that it must have, so that nothing can be said",
    OUTSIDE: "the promise is for one environment, and the runs are of several",
    UNTESTED: "no two complete runs recorded anything that can be compared",
}
URGENT = (BROKEN, DIFFERS, INCOMPARABLE, OUTSIDE)  # a group has the first of these that one of its cells has
WORST_FIRST = (FAILED, BROKEN, INCOMPARABLE, OUTSIDE, DIFFERS, HOLDS, SAME, UNTESTED)
KINDS = '"kinds": "'  # in the environment of a run whose ranks are of several kinds (`miniapps.system.kinds`)
FAILURES = ("check failed", "failed")  # notes on runs that make a group FAILED
RANKS = "number of ranks"  # a cause of differences between rank counts only
DAMAGED = (
    "unreadable",
    "missing ranks",
    "damaged result",
)  # notes on runs whose other files can still be used


@dataclass(frozen=True)
class Over:
    """The coverage of a statement on several runs.

    `compared` of `runs` runs were compared, each pair in `least` to `most` fingerprints and values. `results`: True if
    every pair had states, results or final states among these; `ended`: True if every pair had final states.
    `every_pair`: True if every pair was compared, directly or through a third run with the same rows. `left_out`: names
    that cannot be compared between layouts."""

    runs: int
    compared: int = 0
    least: int = 0
    most: int = 0
    results: bool = False
    ended: bool = False
    every_pair: bool = True
    left_out: tuple[str, ...] = ()


def over(runs: int, compared: int, comparisons: Iterable[Comparison], every_pair: bool = True) -> Over:
    """The coverage of `comparisons`, by which `compared` of `runs` runs were compared."""
    own = list(comparisons)
    if not own:
        return Over(runs)
    rows = [comparison.compared for comparison in own]
    return Over(
        runs, compared, min(rows), max(rows), all(each.results or each.ended for each in own),
        all(each.ended for each in own), every_pair, tuple(sorted({name for each in own for name in each.left_out})),
    )  # fmt: skip


def together(parts: Iterable[Over]) -> Over:
    """The coverage of several statements together."""
    parts = list(parts)
    of = [part for part in parts if part.compared]
    runs = sum(part.runs for part in parts)
    if not of:
        return Over(runs)
    return Over(
        runs, sum(part.compared for part in of), min(part.least for part in of), max(part.most for part in of),
        all(part.results for part in of), all(part.ended for part in of), all(part.every_pair for part in of),
        tuple(sorted({name for part in of for name in part.left_out})),
    )  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """Complete runs that are judged against each other.

    sizes         the rank counts
    runs          the number of runs
    distinct      the number of results; 0: they recorded no results in common
    first         the comparison with the earliest divergence: within an environment, else between environments
    over          the coverage of the comparisons
    within        True if runs of one environment differ
    lacking       a pair that cannot be compared, since records are missing
    least         the equal pair with the fewest records in both, among pairs in which one run has more records
    environments  the number of environments, as the guarantee defines them
    apart         the entries in which environments differ
    """

    label: str
    guarantee: str
    sizes: tuple[int, ...]
    runs: int
    distinct: int
    first: Comparison | None
    over: Over
    within: bool = False
    lacking: Comparison | None = None
    least: Comparison | None = None
    environments: int = 1
    apart: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """True if any bit of two runs differs, at the end or on the way."""
        return self.distinct > 1 or self.first is not None

    @property
    def verdict(self) -> str:
        """The verdict, a key of MEANING."""
        if self.within:
            return DIFFERS if self.guarantee == "none" else BROKEN
        if self.lacking:
            return INCOMPARABLE
        if self.apart:
            return OUTSIDE
        if not self.over.compared:
            return UNTESTED
        return SAME if self.guarantee == "none" else HOLDS


@dataclass(frozen=True)
class Group:
    """The judgement of one group of runs.

    words       its label for people
    runs        the number of complete runs; `incomplete` runs are in no other count
    distinct    the number of results
    state       the hash of the final state, if all complete runs have the same; else empty
    failures    the failures that its runs report, as text
    across      the earliest difference between rank counts, if no guarantee spans them
    beyond      the coverage of the comparison of rank counts, each counted as one run
    beside      the comparison with runs of another group
    cause       the cause of the difference `shown`
    """

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
    beyond: Over | None = None
    beside: Counterpart | None = None
    cause: Cause | None = None

    @property
    def verdict(self) -> str:
        """The verdict, a key of MEANING: FAILED if a run reports a failure, else `bits`."""
        return FAILED if self.failures else self.bits

    @property
    def bits(self) -> str:
        """The verdict by bits alone: the first of URGENT, HOLDS, SAME that a cell or the counterpart has.

        If only rank counts could be compared, their comparison decides; SAME becomes DIFFERS if rank counts differ."""
        verdicts = [cell.verdict for cell in self.cells] + (
            [_of_counterpart(self.beside)] if self.beside else []
        )
        for verdict in (*URGENT, HOLDS, SAME):
            if verdict in verdicts:
                if verdict == SAME and self.across:
                    return DIFFERS
                return verdict
        return DIFFERS if self.across else SAME if self.spanned else UNTESTED

    @property
    def spanned(self) -> bool:
        """True if runs of every rank count were compared, without a promise between them, and are equal."""
        return bool(self.across is None and self.beyond and self.beyond.compared == self.beyond.runs > 1)

    @property
    def over(self) -> Over:
        """The coverage of the comparisons in the group, with runs that were compared only with other rank counts."""
        parts = [cell.over for cell in self.cells]
        if not self.spanned or self.beyond is None:
            return together(parts)
        whole = together([*(part for part in parts if part.compared), self.beyond])
        runs = sum(part.runs for part in parts)
        alone = sum(max(1, part.compared) for part in parts)
        return replace(whole, runs=runs, compared=alone)

    @property
    def why(self) -> str:
        """The cause of the difference in two or three words; empty if nothing differs or no cause is known."""
        return self.cause_of(self.shown, self.cause) if self.shown else ""

    def cause_of(self, pair: Comparison, judged: Cause | None) -> str:
        """The cause of the difference `pair` of this group in two or three words; empty if no cause is known.

        It is the class of `judged`, unless the group has a better cause: an injected fault, or the number of ranks."""
        if self.beside and self.beside.kind == FAULT and pair is self.beside.first:
            return f"injected fault {self.beside.given}"
        if judged is None:
            return ""
        return RANKS if pair is self.across and judged.kind == COLLECTIVE else judged.kind

    @property
    def sure(self) -> bool:
        """True if the evidence excludes every cause but `why`."""
        if self.cause is None or self.cause.kind in (METHOD, ENVIRONMENT) or self.why.startswith("injected"):
            return True
        return not self.cause.instead

    @property
    def shown(self) -> Comparison | None:
        """The difference to report: in a cell, else from another group, else across rank counts; None: none."""
        return self.first or (self.beside.first if self.beside else None) or self.across

    @property
    def tested(self) -> int:
        """The number n of runs that were compared with others of their cell.

        If none differs, p is below 1 - 0.05 ** (1 / n) at 95 %; over several cells this bounds the mean of p over runs,
        since log(1 - p) is concave."""
        return sum(cell.over.compared for cell in self.cells)

    @property
    def first(self) -> Comparison | None:
        """The earliest divergence in any cell."""
        comparisons = [cell.first for cell in self.cells if cell.first]
        return min(comparisons, key=lambda comparison: comparison.when, default=None)


def judge(frames: Frames) -> list[Group]:
    """All groups of the runs, judged, in the order of `grouped`; incomplete runs are counted, but not compared."""
    runs = grouped(frames.runs)
    failed = failures(frames)
    groups = []
    for name, members in runs.groupby("group", sort=False):
        complete = members[members["complete"]]
        states = set(complete["state"]) - {""}
        one = len(states) == 1 and (complete["state"] != "").all()
        judged = [_cell(frames, cell, same) for cell, same in complete.groupby("cell", sort=False)]
        cells = tuple(cell for cell, _ in judged)
        results = (outcomes(frames, complete) if len(complete) else None) or []
        distinct = max([len(set(results)), *(cell.distinct for cell in cells)], default=0)
        across, beyond = _across(frames, complete, [firsts for _, firsts in judged])
        beside = counterpart(frames, runs, complete)
        group = Group(
            name, members["words"].iloc[0], members["guarantee"].iloc[0], members["ordering"].iloc[0],
            tuple(sorted(set((complete if len(complete) else members)["size"].tolist()))),
            len(complete), len(members) - len(complete), distinct, states.pop() if one else "", cells,
            tuple(text for run in members["run"].unique() for text in failed.get(run, ())),
            across, beyond, beside,
        )  # fmt: skip
        groups.append(replace(group, cause=cause(frames, group.shown)) if group.shown else group)
    return groups


def failures(frames: Frames) -> dict[str, list[str]]:
    """{run: [failures that it reports]}, such as `f/bad: check poisson failed: 24 of 37 solves ...`.

    Attempts that were repeated with success are left out."""
    failed: dict[str, list[str]] = {}
    again = repeated(frames)
    for run, what, path, reason, _ in frames.excluded.itertuples(index=False):
        if what in FAILURES and run not in again:
            failed.setdefault(run, []).append(f"{run}: {reason.removeprefix(f'{path}: ')}")
    return failed


def _across(
    frames: Frames, complete: pd.DataFrame, firsts: list[list[Id]]
) -> tuple[Comparison | None, Over | None]:
    """(the earliest difference between rank counts or None, the coverage of their comparison).

    (None, None) if there is one rank count, or if the guarantee spans them. `firsts`: for every rank count the first
    run of each kind of recording."""
    if not len(complete) or complete["guarantee"].iloc[0] in SPANS_LAYOUTS or len(firsts) < 2:
        return None, None
    of = {run: place for place, own in enumerate(firsts) for run in own}
    seen = among(frames, list(of))
    pairs = [pair for pair in seen.comparisons if of[pair.a] != of[pair.b]]
    differing = min((pair for pair in pairs if pair.differs), key=lambda pair: pair.when, default=None)
    comparable = [pair for pair in pairs if pair.comparable]
    counts = len({of[run] for run in seen.compared}) if comparable else 0
    if any(not pair.comparable for pair in pairs):
        counts = 0
    return differing, over(len(firsts), counts, comparable, seen.every_pair)


def _of_counterpart(beside: Counterpart) -> str:
    """The verdict on the comparison with another group: a replay promises the bits of its source."""
    if beside.apart and beside.first:
        return OUTSIDE
    if beside.first:
        return BROKEN if beside.kind == REPLAY else DIFFERS
    if beside.lacking:
        return INCOMPARABLE
    return HOLDS if beside.kind == REPLAY else SAME


def by_weight(groups: Iterable[Group]) -> list[Group]:
    """`groups` sorted by verdict, the worst first; groups of one verdict keep their order."""
    return sorted(groups, key=lambda group: WORST_FIRST.index(group.verdict))


def doubts(frames: Frames, groups: Iterable[Group]) -> list[str]:
    """Clauses on the limits of the verdict: groups with runs that lack records, attempts that were repeated, runs that
    were left out, runs with damaged files, runs whose ranks are of several kinds or contradict each other."""
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
    unlike = frames.runs["run"][frames.runs["environment"].str.contains(KINDS, regex=False)].nunique()
    if unlike:
        sentences.append(f"{counted(unlike, 'run')} with ranks of several kinds")
    return sentences


def counted(count: int, noun: str, several: str = "") -> str:
    """`1 run`, `3 runs`; `several` is the plural if it is not `noun` with an s."""
    return f"{count} {noun if count == 1 else several or f'{noun}s'}"


def ranks(sizes: tuple[int, ...]) -> str:
    """`1, 2, 4 ranks`."""
    return ranks_text(sizes[0]) if len(sizes) == 1 else f"{', '.join(map(str, sizes))} ranks"


def cell_of(frames: Frames, name: str, members: pd.DataFrame) -> Cell:
    """The cell of complete runs, rows of `grouped`: runs of one environment are compared with each other; if these are
    equal, one run of each environment too."""
    return _cell(frames, name, members)[0]


def _cell(frames: Frames, name: str, members: pd.DataFrame) -> tuple[Cell, list[Id]]:
    """The cell, and the first run of each of its kinds of recordings."""
    guarantee = members["guarantee"].iloc[0]
    environments = [members.iloc[places] for places in by_environment(members, guarantee)]
    parts = [among(frames, ids(same)) for same in environments]
    comparisons, every_pair = (
        [pair for part in parts for pair in part.comparisons],
        all(part.every_pair for part in parts),
    )
    distinct = [_results(frames, same, part) for same, part in zip(environments, parts, strict=True)]
    within = any(pair.differs for pair in comparisons) or max(distinct) > 1
    compared = sum(len(part.compared) for part in parts)
    if len(environments) > 1:
        distinct.append(len(set(outcomes(frames, members) or ())))
        if not within:
            others = among(frames, [ids(same)[0] for same in environments])
            comparisons = [*comparisons, *others.comparisons]
            every_pair = every_pair and others.every_pair
            compared = max(compared, len(others.compared))
    differing = [pair for pair in comparisons if pair.differs]
    partial = [pair for pair in comparisons if pair.equal and (pair.only_a or pair.only_b)]
    cell = Cell(
        name, guarantee, tuple(sorted(set(members["size"].tolist()))), len(members), max(distinct),
        min(differing, key=lambda pair: pair.when, default=None),
        over(len(members), compared, [pair for pair in comparisons if pair.comparable], every_pair), within,
        next((pair for pair in comparisons if not pair.comparable), None),
        min(partial, key=lambda pair: pair.compared, default=None),
        len(environments), tuple(several(members, guarantee)),
    )  # fmt: skip
    return cell, [kind[0] for part in parts for kind in part.kinds]


def _results(frames: Frames, members: pd.DataFrame, seen: Among) -> int:
    """A lower bound on the number of different results of the runs; 0 if no two recorded results in common.

    Runs of several kinds are also counted kind by kind and pair by pair, since one kind may lack rows that others have.
    """
    places = dict(zip(ids(members), range(len(members)), strict=True))
    asked = [list(places)]
    if len(seen.kinds) > 1:
        asked += [list(kind) for kind in seen.kinds if len(kind) > 1]
        asked += [[pair.a, pair.b] for pair in seen.comparisons]
    some = [[places[run] for run in runs] for runs in asked]
    return max(len(set(outcomes(frames, members.iloc[rows]) or ())) for rows in some)
