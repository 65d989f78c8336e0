"""Every verdict in words: a badge, a sentence over all runs, a clause for each group, a sentence for each pair of runs,
and the exit code that goes with them. What is said is over what was compared, and says what that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analysis.attempts import repeated
from analysis.counterparts import REPLAY
from analysis.divergence.classes import Cause
from analysis.divergence.points import FINAL, Comparison, Lone, Point
from analysis.groups import SPANS_LAYOUTS
from analysis.load.frames import Frames
from analysis.power import unseen
from analysis.runs import Id, label
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
    URGENT,
    WORST_FIRST,
    Cell,
    Group,
    Over,
    counted,
    doubts,
    failures,
    over,
    ranks,
    together,
)
from miniapps.trace.records import PASSING, SOURCE

BADGES = {
    FAILED: "FAILED", BROKEN: "BROKEN PROMISE", INCOMPARABLE: "NOT COMPARABLE", OUTSIDE: "OTHER ENVIRONMENT",
    DIFFERS: "DIFFERS", HOLDS: "IDENTICAL", SAME: "IDENTICAL", UNTESTED: "NOTHING TO COMPARE",
}  # fmt: skip
AS_RECORDED = "IDENTICAL AS RECORDED"  # of runs that recorded no results, only what they passed on
NO_RESULTS = "no results were recorded"
NOTHING = ": nothing to compare with"  # what is said of a run that is alone
APART = "runs on different numbers of ranks recorded nothing that can be compared between them"
EQUAL_CODE, DIFFERENT_CODE = 0, 3  # exit codes of commands that compare
# What a cause means, for people who do not know its name.
BECAUSE = {
    RANKS: "another number of ranks adds numbers in another order",
    "message order": "messages were taken or added in the order in which they arrived",
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
    sentence. `code` is the exit code of a command that compares runs; `refused` says why there is no verdict although
    nothing differs."""

    verdict: str
    badge: str
    text: str
    code: int = EQUAL_CODE
    refused: str = ""

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
    return f"{_badge(verdict, _over(group))}{cause}"


def _badge(verdict: str, on: Over) -> str:
    """The words for a verdict; IDENTICAL is said of results alone."""
    return AS_RECORDED if verdict in (HOLDS, SAME) and not on.results else BADGES[verdict]


def _over(group: Group) -> Over:
    """What a group of equal runs was compared in, with its counterpart in another group."""
    parts = [group.over]
    if group.beside and group.beside.shown.comparable:
        count = 1 if group.over.compared else 1 + group.runs
        parts.append(over(count, count, [group.beside.shown]))
    return together(parts)


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
    elif of_it and verdict in (HOLDS, SAME):
        text, shown = _equal(equal), _badge(verdict, together(map(_over, equal)))
    elif of_it:
        text = _worst(verdict, of_it, equal)
    elif findings:
        text = "; ".join(each.alone for each in findings if each.verdict == verdict)
        beside = [each.beside for each in findings if each.verdict != verdict]
        beside += [_equal(equal)] if equal else []
    else:
        text = "No usable run: nothing can be said"
    return Headline(verdict, shown, f"{'; '.join([text, *beside, *doubts(frames, groups)])}.")


def headline_of(
    comparisons: Sequence[Comparison],
    judged: Iterable[Cause | None],
    frames: Frames,
    apart: Sequence[Id] = (),
    early: bool = False,
) -> Headline:
    """The verdict over `comparisons` of one run with others, whose causes are `judged`, and over the runs `apart` that
    have nothing in common with it: the first that differs, else what cannot be compared. `early`: a run ended early."""
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
    """A sentence on the first of `groups`, which have this verdict, and how many more there are."""
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
        return f"The runs had different machines or software{what}, for which nothing is promised{too}"
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
    """All runs that could be compared are equal, in what was compared; what a replay repeats is one of them."""
    on = together(map(_over, groups))
    sizes = tuple(sorted({size for group in groups for size in _sizes(group)}))
    runs = f"{counted(on.compared, 'run')} on {ranks(sizes)}"
    within = [f"each of {len(groups)} ways of computing"] if len(groups) > 1 else []
    within += ["each number of ranks"] if any(_by_ranks(group) for group in groups) else []
    among = f", within {' and '.join(within)}" if within else ""
    what = "the same result, to the last bit" if on.results else "the same bits"
    return f"{runs} gave {what}{among}{_in_brackets(on)}{_left(groups)}"


def _sizes(group: Group) -> tuple[int, ...]:
    """The rank counts of the runs of a group that were compared."""
    if group.spanned or group.beside:
        return group.sizes
    return tuple(sorted({size for cell in group.cells if cell.over.compared for size in cell.sizes}))


def _by_ranks(group: Group) -> bool:
    """Whether the runs of a group are said to be equal on each number of ranks alone."""
    return (len([cell for cell in group.cells if cell.over.compared]) > 1 and not group.spanned) or bool(
        group.across
    )


def _left(groups: list[Group]) -> str:
    """What was not compared, behind a sentence on what was."""
    alone = sum(group.runs - group.over.compared for group in groups if not group.beside)
    parts = [f"{counted(alone, 'other run')} had nothing to be compared with"] if alone else []
    parts += [APART] if any(_unspanned(group) for group in groups) else []
    return "".join(f"; {part}" for part in parts)


def _unspanned(group: Group) -> bool:
    """Whether there are rank counts that could not be compared, although nothing is said to differ between them."""
    return bool(group.across is None and group.beyond and not group.spanned)


def rows_text(on: Over) -> str:
    """`222 fingerprints and values and the final state`."""
    count = f"{on.most:,}" if on.least == on.most else f"{on.least:,} to {on.most:,}"
    rows = [f"{count} fingerprints and values"] if on.most else []
    return " and ".join([*rows, *(["the final state"] if on.ended else [])])


def _in_brackets(on: Over) -> str:
    """` (222 fingerprints and values and the final state of each were compared)`."""
    parts = [f"compared: {rows_text(on)}"]
    parts += [NO_RESULTS] if not on.results else []
    parts += ["each with one of them alone"] if not on.whole else []
    return f" ({'; '.join(parts)})"


def clause(group: Group) -> str:
    """What is to be said of one group, without its name."""
    return "; ".join(filter(None, (*group.failures, _of_bits(group), _of_beside(group))))


def _of_bits(group: Group) -> str:
    """What the runs of a group say of each other."""
    verdicts = {cell.verdict for cell in group.cells}
    verdict = next((each for each in (*URGENT, HOLDS, SAME) if each in verdicts), UNTESTED)
    if verdict == UNTESTED and group.spanned:
        verdict = SAME
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
        return _clause_of_equal(group)
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
    """What is said of runs of which no two of a cell were compared."""
    if not group.runs:
        return f"no complete run ({group.incomplete} incomplete)"
    runs = f"{counted(group.runs, 'run')} on {ranks(group.sizes)}"
    if group.across:
        return f"{runs}: {_apart_by_ranks(group, group.across)}"
    if any(cell.runs > 1 for cell in group.cells):
        return f"{counted(group.runs, 'run')} recorded nothing in common to compare"
    if group.beyond:
        return f"{runs}: {APART}"
    return "" if group.beside else f"{runs}{NOTHING}"


def _clause_of_equal(group: Group) -> str:
    """What is said where no cell holds two runs that differ."""
    on = group.over
    where = ""
    if _by_ranks(group):
        alone = sum(cell.over.compared < 1 for cell in group.cells)
        more = f" ({counted(alone, 'rank count')} with one run only)" if alone else ""
        where = f" wherever the number of ranks was the same{more}"
    text = f"{counted(on.compared, 'run')} on {ranks(_sizes(group))} gave the same bits{where}"
    part = min((c.least for c in group.cells if c.least), key=lambda c: c.compared, default=None)
    text += f" {in_both(part)}" if part else f" in {rows_text(on)}"
    text += f"; {NO_RESULTS}" if not on.results else ""
    text += "; each compared with one of them alone" if not on.whole else ""
    text += f" ({unseen(group.tested)})" if group.tested > 1 else ""
    if group.across:
        return f"{text}; {_apart_by_ranks(group, group.across)}"
    return text + _left([group])


def _apart_by_ranks(group: Group, across: Comparison) -> str:
    results = f"{group.distinct} different results" if group.distinct > 1 else "other bits"
    return (
        f"{results} on different numbers of ranks, between which nothing is promised, "
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
        on = over(2, 2, [beside.shown])
        none = "" if on.results else f"; {NO_RESULTS}"
        return f"the same bits as {relation}, {label(beside.source)}, in {rows_text(on)}{none}"
    outside = f" in another environment ({', '.join(beside.apart)})" if beside.apart else ""
    at = f"first at {place(beside.first.part)}{_cause(group, beside.first)}"
    return f"other bits than {relation}{outside}, {label(beside.source)}, {at}"


def sentence(comparison: Comparison) -> str:
    """`a:0 and b:0 differ: first at step 3, vorticity, block 5.`"""
    a, b = label(comparison.a), label(comparison.b)
    if not comparison.comparable:
        return f"{a} and {b} cannot be compared, since records are missing: {lacks(comparison)}."
    if comparison.differs:
        return f"{a} and {b} differ: first at {place(comparison.part)}."
    on = over(2, 2, [comparison])
    none = "" if on.results else f"; {NO_RESULTS}"
    if comparison.only_a or comparison.only_b:
        final = " and in the final state" if comparison.ended else ""
        until = f", up to step {comparison.through}" if comparison.compared else ""
        return f"{a} and {b} are equal {in_both(comparison)}{until}{final}{none}."
    rows = f"{comparison.compared} fingerprints and values up to step {comparison.through}"
    parts = [rows] if comparison.compared else []
    parts += ["the final state"] if comparison.ended else []
    return f"{a} and {b} are equal: the same bits in {' and in '.join(parts)}{none}."


def apart_sentence(a: Id, b: Id, why: str) -> str:
    """What is said of two runs with nothing in common."""
    return f"{label(a)} and {label(b)} were not compared: {why}."


def verdict_of(comparison: Comparison) -> str:
    """The key of MEANING of two runs compared."""
    return DIFFERS if comparison.differs else SAME if comparison.comparable else INCOMPARABLE


def place(point: Point | Lone) -> str:
    """`step 2, vorticity, block 17`."""
    if point.name == FINAL:
        return f"the final state, after step {point.step}"
    block = f", block {point.block}" if point.block >= 0 else ""
    again = f", record {point.occurrence + 1} of this step" if point.occurrence else ""
    if point.name.startswith(SOURCE):
        who = f", on rank {point.block}" if point.block >= 0 else ""
        return f"step {point.step}, the order of messages at {point.name.removeprefix(SOURCE)}{who}{again}"
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
    if lone and lone.name.startswith(PASSING):
        return f"{' and '.join(parts)}{where}. The program made other calls, or records were lost: repeat the runs"
    return f"{' and '.join(parts)}{where}. Copy the runs again, or repeat them"


def in_both(comparison: Comparison) -> str:
    """`in what both recorded (37 of 222 and 37 records)`."""
    a, b = comparison.compared + comparison.only_a, comparison.compared + comparison.only_b
    why = f"; {', '.join(comparison.recordings)}" if comparison.recordings else ""
    return f"in what both recorded ({comparison.compared:,} of {a:,} and {b:,} records{why})"


def _outside(cell: Cell) -> str:
    """What is said of a cell whose runs are of several environments."""
    bits = (
        f"{cell.distinct} different results"
        if cell.distinct > 1
        else f"the same bits in {rows_text(cell.over)}"
    )
    if cell.distinct < 2 and cell.first:
        bits = "one result, but differ on the way" if cell.distinct else f"they differ; {NO_RESULTS}"
    at = f", first at {place(cell.first.part)}" if cell.first else ""
    where = f"{cell.environments} environments" if cell.environments > 1 else "an environment that is not one"
    known = cell.over.compared or cell.differs
    return (
        f"{counted(cell.runs, 'run')} on {ranks(cell.sizes)} in {where}, for which nothing is promised "
        f"({', '.join(cell.apart)}): {bits if known else 'nothing to compare'}{at}"
    )


def _count(cell: Cell) -> str:
    if cell.distinct == cell.runs > 1:
        return f"{cell.runs} of {cell.runs} runs differ"
    if cell.distinct > 1:
        return f"{cell.distinct} different results in {cell.runs} runs"
    if not cell.distinct:  # nothing of a result was recorded, as of programs that run as they are
        return f"{cell.runs} runs differ in what passes through their calls ({NO_RESULTS})"
    return f"{cell.runs} runs end in one result but differ on the way"
