"""Forms the verdict over all runs: a badge, a sentence with the coverage, and the exit code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analysis.attempts import repeated
from analysis.clauses import by_ranks, compared_sizes, not_compared
from analysis.counterparts import REPLAY
from analysis.divergence.classes import INSIDE, UNDECIDED, Cause
from analysis.divergence.points import Comparison
from analysis.load.frames import Frames
from analysis.runs import Id, label
from analysis.sentences import NO_RESULTS, place, rows_text
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
    Over,
    counted,
    doubts,
    failures,
    over,
    ranks,
    together,
)  # fmt: skip

BADGES = {
    FAILED: "FAILED", BROKEN: "BROKEN PROMISE", INCOMPARABLE: "NOT COMPARABLE", OUTSIDE: "OTHER ENVIRONMENT",
    DIFFERS: "DIFFERS", HOLDS: "IDENTICAL", SAME: "IDENTICAL", UNTESTED: "NOTHING TO COMPARE",
}  # fmt: skip
AS_RECORDED = "IDENTICAL AS RECORDED"  # for runs that recorded messages and sums, but no results
EQUAL_CODE, DIFFERENT_CODE = 0, 3  # exit codes of commands that compare
# The end of a sentence for each cause, without its name.
BECAUSE = {
    RANKS: "another number of ranks adds numbers in another order",
    "message order": "messages were taken or added in the order in which they arrived",
    "collective": "a sum over ranks came out differently",
    UNDECIDED: "ranks contributed other numbers, or numbers were added in another order",
    INSIDE: "a rank added numbers in another order",
    "local kernel": "a computation on one rank came out differently",
    "halo exchange": "a message between ranks was lost or changed",
    "memory": "the state changed in memory",
    "input": "the runs started from different data",
    "random state": "the runs drew other random numbers",
    "method": "the runs computed in different ways",
    "environment": "the runs had different machines, software or settings",
}


@dataclass(frozen=True)
class Headline:
    """The verdict over all runs.

    `verdict` is a key of MEANING, `badge` its words with the cause, `text` the sentence. `code` is the exit code of a
    command that compares runs. `refused` is the reason if there is no verdict although nothing differs."""

    verdict: str
    badge: str
    text: str
    code: int = EQUAL_CODE
    refused: str = ""

    def __str__(self) -> str:
        return f"{self.badge}: {self.text}"


@dataclass(frozen=True)
class Finding:
    """A finding that no comparison of runs makes, such as a failed check of one run.

    `verdict` is a key of MEANING. `alone` is the sentence if no group has this verdict, without its full stop; `beside`
    is a clause after the sentence on a group."""

    verdict: str
    alone: str
    beside: str


def badge(group: Group) -> str:
    """`DIFFERS (message order)`, with `probably` if the evidence leaves another cause."""
    verdict, likely = group.verdict, "" if group.sure else "probably "
    cause = f" ({likely}{group.why})" if group.why and verdict in (FAILED, BROKEN, DIFFERS) else ""
    return f"{_badge(verdict, _over(group))}{cause}"


def _badge(verdict: str, on: Over) -> str:
    """The words for a verdict; IDENTICAL only if results were compared."""
    return AS_RECORDED if verdict in (HOLDS, SAME) and not on.results else BADGES[verdict]


def _over(group: Group) -> Over:
    """The coverage of a group of equal runs, with its counterpart in another group."""
    parts = [group.over]
    if group.beside and group.beside.shown.comparable:
        count = 1 if group.over.compared else 1 + group.runs
        parts.append(over(count, count, [group.beside.shown]))
    return together(parts)


def headline(groups: list[Group], frames: Frames, findings: Iterable[Finding] = ()) -> Headline:
    """The worst verdict over all runs in one sentence, with its limits. `findings` count as much as groups."""
    failed, findings = failures(frames), list(findings)
    verdicts = [group.verdict for group in groups] + [finding.verdict for finding in findings]
    verdict = FAILED if failed else min(verdicts, key=WORST_FIRST.index, default=UNTESTED)
    of_it = [group for group in groups if group.verdict == verdict]
    equal = [group for group in groups if group.verdict in (HOLDS, SAME)]
    shown, beside = badge(of_it[0]) if of_it else BADGES[verdict], [each.beside for each in findings]
    if verdict == FAILED:
        text, beside = _failed(failed, frames), []
    elif of_it and verdict in (HOLDS, SAME):
        text, shown = _equal(equal), _badge(verdict, together(map(_over, equal)))
    elif of_it:
        text = _worst(verdict, of_it, equal)
    elif findings:
        text = "; ".join(each.alone for each in findings if each.verdict == verdict)
        beside = [each.beside for each in findings if each.verdict != verdict]
        beside += [_equal(equal)] if equal else []
    else:
        text = "No run can be used, so there is no verdict"
    return Headline(verdict, shown, f"{'; '.join([text, *beside, *doubts(frames, groups)])}.")


def headline_of(
    comparisons: Sequence[Comparison],
    judged: Iterable[Cause | None],
    frames: Frames,
    apart: Sequence[Id] = (),
    early: bool = False,
) -> Headline:
    """The verdict over `comparisons` of one run with others: a difference comes first, then missing records.

    `judged` are the causes of the comparisons, `apart` the runs that have no record in common with the first. `early`:
    True if a run ended early."""
    doubt, count = doubts(frames, ()), len(comparisons) + len(apart)
    differing = [pair for pair in zip(comparisons, judged, strict=True) if pair[0].differs]
    lacking = [comparison for comparison in comparisons if not comparison.comparable]
    code, refused = EQUAL_CODE, ""
    if differing:
        (first, why), verdict = min(differing, key=lambda pair: pair[0].when), DIFFERS
        likely = "probably " if why and why.instead else ""
        shown, code = BADGES[DIFFERS] + (f" ({likely}{why.kind})" if why else ""), DIFFERENT_CODE
        text = f"{len(differing)} of {counted(count, 'comparison')} differ, first at {place(first.part)}"
    elif "ranks disagree" in set(frames.excluded["what"]):
        verdict, shown, code = DIFFERS, BADGES[DIFFERS], DIFFERENT_CODE
        text = "What the runs recorded is equal"
    elif lacking:
        verdict, shown = INCOMPARABLE, BADGES[INCOMPARABLE]
        text = f"{len(lacking)} of {counted(count, 'comparison')} lack records"
        refused = (
            f"records are missing in {len(lacking)} of {count} comparisons: no verdict. Copy the runs again, or "
            "repeat them, and compare again"
        )
    elif apart:
        verdict, shown = UNTESTED, BADGES[UNTESTED]
        text = f"{len(apart)} of {counted(count, 'run')} recorded nothing in common with the first"
        refused = f"{text}: no verdict. Give runs of one problem that record the same things"
    else:
        on = over(count + 1, count + 1, comparisons)
        verdict, shown = SAME, _badge(SAME, on)
        reference = label(comparisons[0].a)
        what = "the same result" if on.results else "the same bits"
        text = f"{counted(count, 'run')} gave {what} as {reference}, to the last bit{_in_brackets(on)}"
        if early:
            refused = (
                "equal as far as recorded, but a run ended early: no verdict. Repeat it, and compare again"
            )
    return Headline(verdict, shown, f"{'; '.join([text, *doubt])}.", code, refused)


def _failed(failed: dict[str, list[str]], frames: Frames) -> str:
    launches = len((set(frames.runs["run"]) | set(frames.excluded["run"])) - set(repeated(frames)))
    first = next(text for own in failed.values() for text in own)
    return f"{len(failed)} of {counted(launches, 'launch', 'launches')} failed; {first}"


def _worst(verdict: str, groups: list[Group], equal: list[Group]) -> str:
    """A sentence on the first of `groups`, which all have this verdict, and the number of the others."""
    group = groups[0]
    others = counted(len(groups) - 1, "other group") if len(groups) > 1 else ""
    too, more = (f"; {words} {others}" if others else "" for words in ("so it is with", "runs differ in"))
    if verdict == UNTESTED:
        if any(each.runs > 1 for each in groups):
            return "Not compared: nothing that these runs recorded can be compared"
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
        return (
            f"The runs had different machines, software or settings{what}, for which nothing is promised{too}"
        )
    likely = "" if group.sure else ", probably"
    because = f"{likely} because {BECAUSE.get(group.why, f'of the {group.why}')}" if group.why else ""
    if group.first is None and group.beside and group.beside.first:
        other = "its replay" if group.beside.kind == REPLAY else "the same run with a fault"
        what = (
            "different results" if group.beside.first.results or group.beside.first.ended else "other records"
        )
        text = f"A run and {other} gave {what}{because}{more}"
    else:
        text = f"{_differing(group)}{because}{more}"
    if verdict == BROKEN:
        return f"A promise of equal results was broken. {text}"
    kept = [each for each in equal if each.verdict == HOLDS and each.guarantee != "none"]
    return f"{text}. With a guarantee {_equal(kept)}" if kept else text


def _differing(group: Group) -> str:
    """`The same computation gave 2 different results in 3 runs`."""
    cell = next((cell for cell in group.cells if cell.differs), None)
    runs, distinct = (cell.runs, cell.distinct) if cell else (group.runs, group.distinct)
    on = f" on {ranks(group.sizes)}" if cell is None else ""
    if distinct > 1:
        return f"The same computation gave {distinct} different results in {counted(runs, 'run')}{on}"
    if distinct == 1:
        return f"The same computation took different ways to one result in {counted(runs, 'run')}{on}"
    passed = f"The same computation passed other numbers through its calls in {counted(runs, 'run')}{on}"
    return f"{passed} ({NO_RESULTS})"


def _equal(groups: list[Group]) -> str:
    """A sentence that all compared runs are equal, with its coverage; a replay's source is one of the runs."""
    on = together(map(_over, groups))
    sizes = tuple(sorted({size for group in groups for size in compared_sizes(group)}))
    runs = f"{counted(on.compared, 'run')} on {ranks(sizes)}"
    within = [f"each of {len(groups)} ways of computing"] if len(groups) > 1 else []
    within += ["each number of ranks"] if any(by_ranks(group) for group in groups) else []
    among = f", within {' and '.join(within)}" if within else ""
    what = "the same result, to the last bit" if on.results else "the same bits"
    return f"{runs} gave {what}{among}{_in_brackets(on)}{not_compared(groups)}"


def _in_brackets(on: Over) -> str:
    """` (222 fingerprints and values and the final state of each were compared)`."""
    parts = [f"compared: {rows_text(on)}"]
    partly = {name.partition(":")[2] for name in on.left_out}
    parts += [f"{counted(len(partly), 'call')} not, or not to the end"] if partly else []
    parts += [NO_RESULTS] if not on.results else []
    parts += ["each with one other run only"] if not on.every_pair else []
    return f" ({'; '.join(parts)})"
