"""Describes the comparison of two runs in one sentence: the verdict, the first difference, the compared records."""

from __future__ import annotations

from analysis.divergence.points import FINAL, Comparison, Lone, Point
from analysis.runs import Id, label
from analysis.verdict import DIFFERS, INCOMPARABLE, SAME, Over, over
from miniapps.trace.records import PASSING, SOURCE

NO_RESULTS = "no results were recorded"


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
    """The sentence on two runs without a common record."""
    return f"{label(a)} and {label(b)} were not compared: {why}."


def verdict_of(comparison: Comparison) -> str:
    """The verdict on two runs, a key of MEANING."""
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
    """A clause on the rows that one run lacks, with the first of them and the remedy.

    `b:0 (4 records) lacks 278 of the 282 of a:0; the first that only a:0 has is at step 0, vorticity, block 0. ...`"""
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


def rows_text(on: Over) -> str:
    """`222 fingerprints and values and the final state`."""
    count = f"{on.most:,}" if on.least == on.most else f"{on.least:,} to {on.most:,}"
    rows = [f"{count} fingerprints and values"] if on.most else []
    return " and ".join([*rows, *(["the final state"] if on.ended else [])])
