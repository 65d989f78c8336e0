"""The verdict for people: a badge for each group, and over all runs a badge and one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from analysis.attempts import repeated
from analysis.counterparts import REPLAY
from analysis.divergence.cause import Cause
from analysis.divergence.compare import Comparison
from analysis.load.frames import Frames
from analysis.verdict import (
    BROKEN,
    DIFFERS,
    FAILED,
    HOLDS,
    INCOMPARABLE,
    OUTSIDE,
    RANKS,
    SAME,
    UNTESTED,
    WORST_FIRST,
    Group,
    counted,
    doubts,
    failures,
    place,
    ranks,
)

BADGES = {
    FAILED: "FAILED", BROKEN: "BROKEN PROMISE", INCOMPARABLE: "NOT COMPARABLE", OUTSIDE: "OTHER ENVIRONMENT",
    DIFFERS: "DIFFERS", HOLDS: "IDENTICAL", SAME: "IDENTICAL", UNTESTED: "NOTHING TO COMPARE",
}  # fmt: skip
# What a cause means, for people who do not know its name.
BECAUSE = {
    RANKS: "another number of ranks adds numbers in another order",
    "message order": "numbers were added in the order in which they arrived",
    "collective": "a sum over ranks came out differently",
    "local kernel": "a computation on one rank came out differently",
    "halo exchange": "a message between ranks was lost or changed",
    "memory": "the state changed in memory",
    "input": "the runs started from different data",
    "method": "the runs computed in different ways",
    "environment": "the runs had different machines or software",
}


@dataclass(frozen=True)
class Headline:
    """What is said of all runs: `verdict` is a key of MEANING, `badge` the words for it with the cause, `text` the
    sentence."""

    verdict: str
    badge: str
    text: str

    def __str__(self) -> str:
        return f"{self.badge}: {self.text}"


@dataclass(frozen=True)
class Finding:
    """What is known beside the groups, such as of a run that needs no other to be compared with: its `verdict`, a key
    of MEANING; `alone`, the sentence where no group has this verdict, without its full stop; `beside`, a clause after
    the sentence on a group."""

    verdict: str
    alone: str
    beside: str


def badge(group: Group) -> str:
    """`DIFFERS (message order)`, with `probably` where the evidence leaves another cause."""
    verdict, likely = group.verdict, "" if group.sure else "probably "
    cause = f" ({likely}{group.why})" if group.why and verdict in (FAILED, BROKEN, DIFFERS) else ""
    return f"{BADGES[verdict]}{cause}"


def headline(groups: list[Group], frames: Frames, findings: Iterable[Finding] = ()) -> Headline:
    """The verdict over all runs in one sentence: the worst that there is to say, and what limits it. `findings` are of
    the same weight as groups."""
    failed, findings = failures(frames), list(findings)
    verdicts = [group.verdict for group in groups] + [finding.verdict for finding in findings]
    verdict = FAILED if failed else min(verdicts, key=WORST_FIRST.index, default=UNTESTED)
    of_it = [group for group in groups if group.verdict == verdict]
    equal = [group for group in groups if group.verdict in (HOLDS, SAME)]
    shown, beside = badge(of_it[0]) if of_it else BADGES[verdict], [each.beside for each in findings]
    if verdict == FAILED:
        text, beside = _failed(failed, frames), []
    elif of_it:
        text = _equal(equal) if verdict in (HOLDS, SAME) else _worst(verdict, of_it, equal)
    elif findings:
        text = "; ".join(each.alone for each in findings if each.verdict == verdict)
        beside = [each.beside for each in findings if each.verdict != verdict]
        beside += [_equal(equal)] if equal else []
    else:
        text = "No usable run: nothing can be said"
    return Headline(verdict, shown, f"{'; '.join([text, *beside, *doubts(frames, groups)])}.")


def headline_of(comparisons: list[Comparison], judged: Iterable[Cause | None], frames: Frames) -> Headline:
    """The verdict over `comparisons` of one run with others, whose causes are `judged`: the first that differs, else
    the first that lacks records."""
    doubt = doubts(frames, ())
    differing = [pair for pair in zip(comparisons, judged, strict=True) if pair[0].differs]
    lacking = [comparison for comparison in comparisons if not comparison.comparable]
    if differing:
        (first, why), verdict = min(differing, key=lambda pair: pair[0].when), DIFFERS
        likely = "probably " if why and why.instead else ""
        shown = BADGES[DIFFERS] + (f" ({likely}{why.kind})" if why else "")
        text = f"{len(differing)} of {counted(len(comparisons), 'comparison')} differ, first at {place(first.part)}"
    elif lacking:
        verdict, shown = INCOMPARABLE, BADGES[INCOMPARABLE]
        text = f"{len(lacking)} of {counted(len(comparisons), 'comparison')} lack records"
    elif "ranks disagree" in set(frames.excluded["what"]):
        verdict, shown, text = DIFFERS, BADGES[DIFFERS], "What the runs recorded is equal"
    else:
        verdict, shown = SAME, BADGES[SAME]
        text = f"{counted(len(comparisons) + 1, 'run')} gave the same bits"
    return Headline(verdict, shown, f"{'; '.join([text, *doubt])}.")


def _failed(failed: dict[str, list[str]], frames: Frames) -> str:
    launches = len((set(frames.runs["run"]) | set(frames.excluded["run"])) - set(repeated(frames)))
    first = next(text for own in failed.values() for text in own)
    return f"{len(failed)} of {counted(launches, 'launch', 'launches')} failed; {first}"


def _worst(verdict: str, groups: list[Group], equal: list[Group]) -> str:
    """A sentence on the first of `groups`, which have this verdict, and how many more there are."""
    group = groups[0]
    others = counted(len(groups) - 1, "other group") if len(groups) > 1 else ""
    too, more = (f"; {words} {others}" if others else "" for words in ("so it is with", "runs differ in"))
    if verdict == UNTESTED:
        return (
            "No two complete runs computed the same problem in the same way, so there is nothing to compare"
        )
    if verdict == INCOMPARABLE:
        return f"Runs cannot be compared, since records are missing{too}"
    if verdict == OUTSIDE:
        entries = next((cell.apart for cell in group.cells if cell.apart), ()) or (
            group.beside and group.beside.apart
        )
        what = f" ({', '.join(entries)})" if entries else ""
        return f"The runs had different machines or software{what}, for which nothing is promised{too}"
    likely = "" if group.sure else ", probably"
    because = f"{likely} because {BECAUSE.get(group.why, f'of the {group.why}')}" if group.why else ""
    if group.first is None and group.beside and group.beside.first:
        other = "its replay" if group.beside.kind == REPLAY else "the same run with a fault"
        text = f"A run and {other} gave different results{because}{more}"
    else:
        text = f"{_results(group)}{because}{more}"
    if verdict == BROKEN:
        return f"A promise of equal results was broken. {text}"
    kept = [each for each in equal if each.verdict == HOLDS and each.guarantee != "none"]
    runs = counted(sum(each.runs for each in kept), "run")
    return f"{text}. With a guarantee {runs} gave {_one(kept)}" if kept else text


def _results(group: Group) -> str:
    """`The same computation gave 2 different results in 3 runs`."""
    cell = next((cell for cell in group.cells if cell.first), None)
    runs, distinct = (cell.runs, cell.distinct) if cell else (group.runs, group.distinct)
    if not distinct:
        return f"The same computation passed other numbers through its calls in {counted(runs, 'run')}"
    if distinct < 2:
        return f"The same computation took different ways to one result in {counted(runs, 'run')}"
    on = f" on {ranks(group.sizes)}" if cell is None else ""
    return f"The same computation gave {distinct} different results in {counted(runs, 'run')}{on}"


def _equal(groups: list[Group]) -> str:
    """All runs that could be compared are equal; what a replay repeats is one of them."""
    sizes = tuple(sorted({size for group in groups for size in group.sizes}))
    count = sum(group.runs + bool(group.beside) for group in groups)
    runs = f"{counted(count, 'run')} on {ranks(sizes)}"
    return f"{runs} gave {_one(groups)}"


def _one(groups: list[Group]) -> str:
    """`the same result, to the last bit`, and among which runs where that is not all of them."""
    among = [f"each of {len(groups)} ways of computing"] if len(groups) > 1 else []
    among += ["each number of ranks"] if any(group.across for group in groups) else []
    return "the same result, to the last bit" + (f", within {' and '.join(among)}" if among else "")
