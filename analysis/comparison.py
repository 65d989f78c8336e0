"""Two runs compared, in words: where they part, why, and how much of them was compared."""

from __future__ import annotations

import math

from analysis import bits
from analysis.divergence.cause import cause, unlike
from analysis.divergence.compare import Comparison, Point
from analysis.divergence.element import Element, first_element
from analysis.divergence.trail import Event
from analysis.load.frames import Frames
from analysis.page.text import number
from analysis.runs import label
from analysis.verdict import in_both, lacks, place


def comparison_lines(found: Comparison, frames: Frames) -> list[str]:
    """Where two runs part, in words."""
    a, b = label(found.a), label(found.b)
    if not found.comparable:
        return [
            f"{a} and {b} cannot be compared, since records are missing: {lacks(found)}.",
            f"  {'compared':<15}no difference {in_both(found)}",
        ]
    if found.equal:
        told = _unequal_lengths(found, frames)
        told += [("unlike", "; ".join(words))] if (words := unlike(frames, found)) else []
        unequal = [f"  {what:<15}{text}" for what, text in told]
        if found.only_a or found.only_b:
            return [f"{a} and {b} are equal {in_both(found)}, up to step {found.through}.", *unequal]
        return [f"{a} and {b} are equal: the same bits in {compared(found)}.", *unequal]
    head = f"{a} and {b} differ: first at {place(found.part)}."
    return [head, *(f"  {what:<15}{text}" for what, text in facts(found, frames))]


def facts(found: Comparison, frames: Frames) -> list[tuple[str, str]]:
    """What is known about the first divergence of two runs, as (label, text)."""
    lines = []
    if found.fingerprint:
        at = found.fingerprint
        lines.append(("fingerprint", f"{place(at)}: {_owners(at, found, frames)}"))
        if at.recorded > 1:
            lines.append(("spread", f"{at.differing} of {at.recorded} blocks of {at.name} differ there"))
    lines += [("value there", difference(point)) for point in found.values]
    if found.largest and found.largest not in found.values:
        lines.append(("largest there", difference(found.largest)))
    if found.value and found.value not in found.values:
        lines.append(("first value", f"step {found.value.step}: {difference(found.value)}"))
    lines += _cause_lines(found, frames)
    if found.order:
        step, name, call, first, second = found.order
        orders = f"{_sequence(first)} against {_sequence(second)}"
        lines.append(("arrival order", f"first differs at step {step}, {name}, call {call + 1}: {orders}"))
    return [*lines, *_unequal_lengths(found, frames), ("compared", compared(found))]


def _cause_lines(found: Comparison, frames: Frames) -> list[tuple[str, str]]:
    """The class of the cause, its event, the reasons, and the first element where files hold it."""
    lines = []
    if judged := cause(frames, found):
        who = "" if judged.rank is None else f" on rank {judged.rank}"
        again = f" in block {judged.at.block}" if judged.at.block >= 0 and judged.rank is not None else ""
        step = judged.event.step if judged.event else judged.at.step
        lines.append(("cause", f"{judged.kind}: {judged.name}{again}{who}, step {step}"))
        if judged.event:
            lines.append(("event", event_text(judged.event, label(found.b))))
        lines.append(("why", "; ".join(judged.why)))
        if judged.instead:
            lines.append(("or", f"{judged.instead}: {judged.instead_why}"))
    element, unread = first_element(frames, found)
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
    """Where, both numbers in decimal and as bits, how far apart, and how many more there are."""
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


def _unequal_lengths(found: Comparison, frames: Frames) -> list[tuple[str, str]]:
    """A line that says so where one run has more steps than the other."""
    last = frames.runs.set_index(["run", "repeat"])["last_step"]
    a, b = int(last[found.a]), int(last[found.b])
    if a == b:
        return []
    return [
        (
            "steps",
            f"{label(found.a)} has steps up to {a}, {label(found.b)} up to {b}: only those in both count",
        )
    ]


def compared(found: Comparison) -> str:
    """How much of two runs was compared."""
    alone = [
        f"{n} only in {label(run)}" for n, run in ((found.only_a, found.a), (found.only_b, found.b)) if n
    ]
    return "; ".join([f"{found.compared} fingerprints and values up to step {found.through}", *alone])


def difference(point: Point) -> str:
    """`sample[17]: -2.5 against -2.5000000000000004 (1 ULP, relative 1.8e-16)`."""
    where = f"[{point.block}]" if point.block >= 0 else ""
    ulp = float(bits.ulp_distance(point.a, point.b))
    relative = float(bits.relative_difference(point.a, point.b))
    size = "NaN or infinite" if math.isnan(ulp) else f"{number(ulp)} ULP, relative {number(relative)}"
    return f"{point.name}{where} {point.a!r} against {point.b!r} ({size})"


def _owners(point: Point, found: Comparison, frames: Frames) -> str:
    sizes = frames.runs.set_index(["run", "repeat"])["size"]
    owners = ((point.rank_a, found.a), (point.rank_b, found.b))
    return "owned by " + ", ".join(f"rank {rank} of {sizes[run]} in {label(run)}" for rank, run in owners)


def _sequence(order: tuple[int, ...]) -> str:
    shown = " ".join(map(str, order[:16]))
    return f"{shown} ..." if len(order) > 16 else shown
