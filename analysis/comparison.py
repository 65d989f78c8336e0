"""Describes the comparison of two runs in words: their first difference, its cause, and the compared records."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Sequence

from analysis.divergence.cause import cause
from analysis.divergence.classes import Cause
from analysis.divergence.element import Element, first_element
from analysis.divergence.points import Comparison, Point
from analysis.divergence.preceding import Event
from analysis.divergence.rounding import NOT_ROUNDING, OPEN, ROUNDING
from analysis.divergence.unlike import unlike
from analysis.load.frames import Frames
from analysis.operations import Audited, remarks_on
from analysis.page.text import number
from analysis.runs import label
from analysis.sentences import in_both, place, verdict_of
from kernels import bits
from miniapps.trace.records import NO_NUMBERS, OF_WINDOWS, READ, SOURCE, WRITTEN

COMPARED = {"a": "object", "b": "object", "verdict": "object", "step": "Int64", "name": "object", "block": "Int64",
            "occurrence": "Int64", "differing": "Int64", "recorded": "Int64", "cause": "object", "cause_in": "object",
            "cause_rank": "Int64", "cause_step": "Int64", "or_cause": "object", "rounding": "object",
            "amplification": "Float64", "next": "object", "compared": "Int64", "only_a": "Int64", "only_b": "Int64",
            "through": "Int64"}  # fmt: skip


MOST_ALIKE = 12  # remarks with one label that are shown; all are in JSON
# Records of a program that depend on the rank, by what they are of.
OF_RANKS = {"writes and reads of files": (WRITTEN, READ), "one-sided calls and windows": OF_WINDOWS}
LISTED = 3  # calls named that cannot be compared


def line(what: str, text: str) -> str:
    """A remark as a line of text."""
    return f"  {what:<15}{text}"


def remarks(
    comparison: Comparison, frames: Frames, judged: Cause | None = None, audits: Sequence[Audited] = ()
) -> list[tuple[str, str]]:
    """The remarks on two runs beside the sentence, as (label, text).

    `judged` is the cause of the difference, if the caller knows it; `audits` are of operations of watched models."""
    if not comparison.comparable:
        return [("compared", f"no difference {in_both(comparison)}")]
    if comparison.differs:
        return facts(comparison, frames, judged, audits)
    unequal = _unequal_lengths(comparison, frames) + _left_out(comparison, frames)
    return unequal + ([("unlike", "; ".join(words))] if (words := unlike(frames, comparison)) else [])


def first_of_each(told: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The first MOST_ALIKE of the remarks with one label, and the number of the others."""
    shown: list[tuple[str, str]] = []
    for name, same in itertools.groupby(told, lambda each: each[0]):
        own = list(same)
        shown += own[:MOST_ALIKE]
        if len(own) > MOST_ALIKE:
            shown.append((name, f"and {len(own) - MOST_ALIKE:,} more"))
    return shown


def comparison_row(comparison: Comparison, judged: Cause | None) -> dict[str, object]:
    """The comparison of two runs as a row with the columns COMPARED; `judged` is the cause of their difference."""
    point = comparison.first
    row: dict[str, object] = dict.fromkeys(COMPARED)
    row |= {
        "a": label(comparison.a), "b": label(comparison.b),
        "verdict": verdict_of(comparison),
        "compared": comparison.compared, "only_a": comparison.only_a, "only_b": comparison.only_b,
        "through": comparison.through,
    }  # fmt: skip
    if point:
        row |= {"step": point.step, "name": point.name, "block": point.block, "occurrence": point.occurrence}
        row |= {"differing": point.differing, "recorded": point.recorded}
    if judged:
        row |= {"cause": judged.kind, "cause_in": judged.name, "cause_step": judged.step}
        row |= {"cause_rank": judged.rank, "or_cause": judged.instead or None, "next": judged.next}
        row |= {"rounding": judged.rounding.verdict, "amplification": judged.rounding.amplification}
    return row


def facts(
    comparison: Comparison, frames: Frames, judged: Cause | None = None, audits: Sequence[Audited] = ()
) -> list[tuple[str, str]]:
    """The facts about the first divergence of two runs, as (label, text); `judged` and `audits` as in `remarks`."""
    lines = []
    if comparison.fingerprint:
        at = comparison.fingerprint
        lines.append(("fingerprint", f"{place(at)}: {_owners(at, comparison, frames)}"))
        if at.recorded > 1:
            lines.append(("spread", f"{at.differing} of {at.recorded} blocks of {at.name} differ there"))
    lines += [("value there", difference(point)) for point in comparison.values]
    if comparison.largest and comparison.largest not in comparison.values:
        lines.append(("largest there", difference(comparison.largest)))
    if comparison.value and comparison.value not in comparison.values:
        lines.append(("first value", f"step {comparison.value.step}: {difference(comparison.value)}"))
    if comparison.messages:
        lines.append(("messages", difference(comparison.messages)))
    lines += _cause_lines(comparison, frames, judged or cause(frames, comparison), audits)
    if comparison.order:
        step, name, call, first, second = comparison.order
        orders = f"{_sequence(first)} against {_sequence(second)}"
        lines.append(("arrival order", f"first differs at step {step}, {name}, call {call + 1}: {orders}"))
    last = [("compared", compared(comparison)), *_left_out(comparison, frames)]
    return [*lines, *_unequal_lengths(comparison, frames), *last]


def _left_out(comparison: Comparison, frames: Frames) -> list[tuple[str, str]]:
    """Lines on the calls that cannot be compared between two layouts, or not to the end."""
    never = _listed(name for name in comparison.left_out if name not in comparison.moved)
    later = _listed(comparison.moved)
    lines = []
    if never:
        lines.append(
            ("left out", f"not over all ranks of both runs, or not of the same array there: {never}")
        )
    sizes = frames.runs.set_index(["run", "repeat"])["size"]
    if sizes[comparison.a] != sizes[comparison.b]:
        names = frames.recorded("fingerprints", *comparison.a)
        of_ranks = [what for what, own in OF_RANKS.items() if any(name.startswith(own) for name in names)]
        why = "compared by rank, so only between equal numbers of ranks"
        lines += [("left out", f"{what}: {why}") for what in of_ranks]
    if later:
        why = f"from step {comparison.parted} on, the two make other calls, so these are not compared there"
        lines.append(("left out", f"{why}: {later}"))
    return lines


def _listed(names: Iterable[str]) -> str:
    """The first LISTED calls of `names`, and the number of the others."""
    calls = list(dict.fromkeys(name.partition(":")[2] for name in names))
    more = f" and {len(calls) - LISTED} more" if len(calls) > LISTED else ""
    return ", ".join(calls[:LISTED]) + more


def _rounding(judged: Cause) -> str:
    """The judgement whether rounding explains a difference, with its numbers."""
    verdict = {
        ROUNDING: "explains it",
        NOT_ROUNDING: "does not explain it",
        OPEN: "cannot be told from the records",
    }
    return f"{verdict[judged.rounding.verdict]}: {judged.rounding.why}"


def _cause_lines(
    comparison: Comparison, frames: Frames, judged: Cause | None, audits: Sequence[Audited]
) -> list[tuple[str, str]]:
    """The class of the cause, its event, the reasons, and the first element where files hold it."""
    lines = []
    if judged:
        who = "" if judged.rank is None else f" on rank {judged.rank}"
        again = f" in block {judged.at.block}" if judged.at.block >= 0 and judged.rank is not None else ""
        lines.append(("cause", f"{judged.kind}: {judged.name}{again}{who}, step {judged.step}"))
        if judged.event:
            lines.append(("event", event_text(judged.event, label(comparison.b))))
        lines.append(("why", "; ".join(judged.why)))
        if judged.instead:
            lines.append(("or", f"{judged.instead}: {judged.instead_why}"))
        if judged.operation:
            environment = frames.runs.set_index(["run", "repeat"]).loc[comparison.b, "environment"]
            lines += remarks_on(judged.operation, audits, json.loads(environment))
        lines.append(("rounding", _rounding(judged)))
        lines.append(("next", judged.next))
    element, unread = first_element(frames, comparison)
    if element:
        lines.append(("element", element_text(element)))
    return lines + [("not compared", sentence) for sentence in unread]


def event_text(event: Event, run: str) -> str:
    """`scalars, call 6 of step 2, rank 0 of b:0: 1.2034 s into the run, 41.2 us long (event 137)`."""
    return (
        f"{event.name}, call {event.call + 1} of step {event.step}, on rank {event.rank} in {run}: "
        f"{event.start / 1e9:.6f} s into the run, {(event.end - event.start) / 1e3:.4g} us long (event {event.index})"
    )


def element_text(element: Element) -> str:
    """The place of an element, both numbers in decimal and hexadecimal, their distance, and how many others differ."""
    block = f", block {element.block} at {_index(element.local)}" if element.block >= 0 else ""
    a, b = (f"{float(x)!r} ({float(x).hex()})" for x in (element.a, element.b))
    ulp = "NaN" if math.isnan(element.ulp) else f"{number(element.ulp)} ULP"
    most = "NaN" if math.isnan(element.most) else f"{number(element.most)} ULP"
    return (
        f"{element.field}{_index(element.index)}{block}: {a} against {b}, {ulp}; "
        f"{element.differing} of {element.elements} differ, most at {_index(element.furthest)} by {most} "
        f"({element.file})"
    )


def _index(index: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, index))}]"


def _unequal_lengths(comparison: Comparison, frames: Frames) -> list[tuple[str, str]]:
    """A line if one run has more steps than the other, or counts steps differently; else none."""
    if comparison.counted:
        return _counted(comparison)
    last = frames.runs.set_index(["run", "repeat"])["last_step"]
    a, b = int(last[comparison.a]), int(last[comparison.b])
    if a == b:
        return []
    return [
        (
            "steps",
            f"{label(comparison.a)} has steps up to {a}, {label(comparison.b)} up to {b}: only those in both count",
        )
    ]


def _counted(comparison: Comparison) -> list[tuple[str, str]]:
    steps = comparison.first.steps if comparison.first else (0, 0)
    if steps[0] == steps[1]:
        return []
    a, b = label(comparison.a), label(comparison.b)
    why = f"before it, {a if steps[0] > steps[1] else b} made more calls that were on all of its ranks"
    return [("steps", f"step {steps[0]} of {a} is step {steps[1]} of {b}: {why}")]


def compared(comparison: Comparison) -> str:
    """The number of compared records of two runs, and of records that only one run has."""
    rows = ((comparison.only_a, comparison.a), (comparison.only_b, comparison.b))
    alone = [f"{n} only in {label(run)}" for n, run in rows if n]
    return "; ".join(
        [f"{comparison.compared} fingerprints and values up to step {comparison.through}", *alone]
    )


def difference(point: Point) -> str:
    """`sample[17]: -2.5 against -2.5000000000000004 (1 ULP, relative 1.8e-16)`."""
    if point.name.startswith(SOURCE):
        who = f"on rank {point.block}, " if point.block >= 0 else ""
        one, other = ("none" if rank < 0 else f"rank {rank:.0f}" for rank in (point.a, point.b))
        number_of = f"message {point.occurrence + 1} of this step"
        return f"{who}{number_of} at {point.name.removeprefix(SOURCE)} is of {one} against {other}"
    if point.name.startswith(NO_NUMBERS):
        kind, _, call = point.name.partition(":")
        which = f"on rank {point.block}, call {point.occurrence + 1} of this step at {call}"
        return f"{which}: {kind} {point.a:.0f} against {point.b:.0f}"
    where = f"[{point.block}]" if point.block >= 0 else ""
    ulp = float(bits.ulp_distance(point.a, point.b))
    relative = float(bits.relative_difference(point.a, point.b))
    size = "NaN or infinite" if math.isnan(ulp) else f"{number(ulp)} ULP, relative {number(relative)}"
    return f"{point.name}{where} {point.a!r} against {point.b!r} ({size})"


def _owners(point: Point, comparison: Comparison, frames: Frames) -> str:
    sizes = frames.runs.set_index(["run", "repeat"])["size"]
    owners = ((point.rank_a, comparison.a), (point.rank_b, comparison.b))
    return "owned by " + ", ".join(f"rank {rank} of {sizes[run]} in {label(run)}" for rank, run in owners)


def _sequence(order: tuple[int, ...]) -> str:
    shown = " ".join(map(str, order[:16]))
    return f"{shown} ..." if len(order) > 16 else shown
