"""Classifies a first difference from the blocks that differ after a step, if only states were recorded."""

from __future__ import annotations

import numpy as np

from analysis.divergence import preceding, rounding
from analysis.divergence.classes import COLLECTIVE, FROM_INPUT, HALO, KERNEL, MEMORY, ORDER, UNDECIDED, Cause
from analysis.divergence.points import Point
from analysis.divergence.preceding import NO_WORK, Event
from analysis.divergence.rounding import ROUNDING
from analysis.divergence.scene import SHOWN, Scene, event_names, which_blocks
from analysis.load.timeline import WITH_PARTNERS
from kernels import bits
from miniapps.trace.schema import COLLECTIVE as SUMS


def after_a_step(scene: Scene, name: str) -> Cause:
    """The class of a difference in the state `name` after a step."""
    at, before = scene.at, scene.preceding()
    blocks = scene.blocks
    differing, count = int(blocks["differs"].sum()), len(blocks)
    worked = [event for event in before.ended if event.kind not in NO_WORK]
    sums = [event for event in worked if event.kind == SUMS]
    exchanges = [event for event in worked if event.kind in WITH_PARTNERS]
    local = [event for event in worked if event not in sums and event not in exchanges]
    advice = scene.advice("messages")
    why = [
        f"it differs in {which_blocks(scene)}"
        if at.block >= 0
        else f"{at.name}, a number of the whole run, differs"
    ]
    why += [f"between this record and the last one ended {event_names(worked)}"] if worked else []
    if not worked and before.known and before.since is None:
        return Cause(FROM_INPUT, at, name, scene.rank, None, (*why, "no event ended before it"))
    orders = {event: scene.order(scene.reducer(event.name), event.call, event.step) for event in sums}
    if reordered := _reordered(scene, orders, before.since):
        names = list(dict.fromkeys(reducer for reducer, _, _ in reordered))
        noun = "order" if len(names) == 1 else "orders"
        verb = "differs" if len(names) == 1 else "differ"
        why.append(
            f"of sums since the last equal record, the recorded {noun} of {', '.join(names[:SHOWN])} {verb}"
        )
        reducer, step, call = reordered[0]
        event = preceding.nth(scene.b["path"], scene.repeat, scene.rank, step, scene.region(reducer), call)
        return Cause(
            ORDER, at, ", ".join(names[:SHOWN]), None, event, tuple(why), KERNEL,
            f"the order need not matter; {advice}",
        )  # fmt: skip
    owners = blocks["rank"][blocks["differs"]].unique()
    if at.block >= 0 and differing == 1 < count:
        if sums and not _other_names_differ(scene):
            why.append(
                f"nothing else does, although {sums[-1].name} followed, which carries differences to all blocks"
            )
            return Cause(
                MEMORY, at, name, scene.rank, None, tuple(why), KERNEL, f"after {sums[-1].name}; {advice}"
            )
        event = local[-1] if local else None
        why.append("other records of the step differ as well, as after a sum over all blocks")
        return Cause(
            KERNEL, at, event.name if event else name, scene.rank, event, tuple(why), HALO, advice
        )  # fmt: skip
    if at.block >= 0 and 1 < differing < count and len(owners) == 1 < int(scene.b["size"]) and exchanges:
        why.append(f"all of them are on rank {owners[0]}")
        return Cause(HALO, at, exchanges[-1].name, int(owners[0]), exchanges[-1], tuple(why), KERNEL, advice)
    point = _largest(scene)
    judgement = rounding.of_local(*scene.farthest())
    if judgement.amplification is None and point:
        judgement = rounding.of_local(*scene.sizes(point))
    if differing == count and (moved := [event for event in sums if scene.regrouped(event.name)]):
        why.append(
            f"{scene.a['size']} and {scene.b['size']} ranks group the contributions to {event_names(moved)} in other "
            "ways, for which no equal bits are promised"
        )
        kind = COLLECTIVE if judgement.verdict == ROUNDING else UNDECIDED
        reducer = scene.reducer(moved[0].name)
        return Cause(kind, at, reducer, None, moved[0], tuple(why), KERNEL, advice, rounding=judgement)
    event = local[-1] if local else None
    same = [event for event, order in orders.items() if order == (False, True)]
    free = [event for event in sums if not scene.fixed(event.name) and event not in same]
    if same:
        why.append(f"the recorded order of {event_names(same)} is the same")
    elif sums and not free:
        why.append(f"no order changes {event_names(sums)}, which the guarantee fixes")
    if free and judgement.verdict == ROUNDING:
        reducer = scene.reducer(free[-1].name)
        return Cause(
            COLLECTIVE, at, reducer, None, free[-1], tuple(why), KERNEL, advice, rounding=judgement
        )  # fmt: skip
    block = point.block if point is not None and point.block >= 0 else at.block
    if block >= 0 and block != at.block:
        why.append(f"it is largest in block {block}")
    other = COLLECTIVE if free else HALO if exchanges else ""
    return Cause(
        KERNEL, at, event.name if event else name, scene.rank, event, tuple(why), other, advice if other else "",
        rounding=judgement,
    )  # fmt: skip


def _reordered(
    scene: Scene, orders: dict[Event, tuple[bool, bool] | None], since: tuple[int, str] | None
) -> list[tuple[str, int, int]]:
    """(reducer, step, call) of each sum since the last equal record whose recorded order differs. `orders`: by event
    since then. If no event has one, all orders count that were recorded between the two steps."""
    if any(order is not None for order in orders.values()):
        found = [event for event, order in orders.items() if order and all(order)]
        return [(scene.reducer(event.name), event.step, event.call) for event in found]
    a, b = (scene.frames.of("order", *run) for run in (scene.comparison.a, scene.comparison.b))
    both = a.merge(b, on=["step", "name", "occurrence"], suffixes=("", "_b"))
    both = both[both["step"].between(since[0] if since else 0, scene.at.step)]
    changed = both[
        (both["ranks"] != both["ranks_b"]) & (both["ranks"].str.len() == both["ranks_b"].str.len())
    ]
    return [(str(row.name), int(row.step), int(row.occurrence)) for row in changed.itertuples(index=False)]


def _other_names_differ(scene: Scene) -> bool:
    """True if blocks of another name differ in this step."""
    a, b, step = scene.comparison.a, scene.comparison.b, scene.at.step
    for name in set(scene.frames.recorded("fingerprints", *b)) - {scene.at.name}:
        sides = [scene.frames.segment("fingerprints", *run, name, step) for run in (a, b)]
        both = sides[0].merge(sides[1], on=["occurrence", "block"], suffixes=("_a", "_b"))
        if ((both["hi_a"] != both["hi_b"]) | (both["lo_a"] != both["lo_b"])).any():
            return True
    return False


def _largest(scene: Scene) -> Point | None:
    """The value with the largest relative difference at the first differing step; None if no value differs there."""
    points = [
        p
        for p in (*scene.comparison.values, scene.comparison.largest, scene.comparison.value)
        if p is not None
    ]
    points = [p for p in points if p.step == scene.at.step]
    if not points:
        return None
    sizes = [float(bits.relative_difference(p.a, p.b)) for p in points]
    return points[int(np.argmax(np.nan_to_num(sizes, nan=np.inf)))]
