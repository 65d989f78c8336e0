"""Classifies a first difference from records of messages, sums and kernels.

Each function judges one kind of record. Its `name` is the name of the record without the prefix of the kind.
"""

from __future__ import annotations

import json
from dataclasses import replace

from analysis.divergence import rounding, sized
from analysis.divergence.classes import (
    COLLECTIVE,
    FROM_INPUT,
    HALO,
    INSIDE,
    KERNEL,
    MEMORY,
    ORDER,
    UNDECIDED,
    Cause,
)
from analysis.divergence.later import by_arrival
from analysis.divergence.points import Point
from analysis.divergence.preceding import NO_WORK
from analysis.divergence.rounding import NOT_ROUNDING, OPEN, ROUNDING, Judgement
from analysis.divergence.scene import SHOWN, Scene, event_names, which_blocks, which_ranks
from analysis.load.timeline import WAITING
from miniapps.trace.records import ADDED, RECEIVED, SENT

# Orderings of reductions under `fpna run` (miniapps.programs.calltrace).
LIBRARY, OF_RANKS = "library", "tree over ranks"


def of_input(scene: Scene, name: str) -> Cause:
    """The input of the run differs."""
    why = [f"{name} differs in {which_blocks(scene)} as the run begins, before anything is computed"]
    return Cause(FROM_INPUT, scene.at, name, scene.rank, None, tuple(why))


def of_computed(scene: Scene, name: str) -> Cause:
    """The result of a kernel differs."""
    blocks = scene.blocks
    why = [f"{name} gave other bits in {which_blocks(scene)}", "all that was recorded before it is equal"]
    instead, reason = "", ""
    if blocks["differs"].all() and len(blocks) > 1:
        instead = FROM_INPUT
        reason = (
            "every block differs at once, as with another build, library or a number that is not recorded"
        )
    return Cause(KERNEL, scene.at, name, scene.rank, scene.event(name), tuple(why), instead, reason)


def of_node(scene: Scene, name: str) -> Cause:
    """A value of a partitioned program differs: `NODE`, the result `NODE.K` of several, or `NODE@CUT` after a move."""
    node, _, moved = name.partition("@")
    head, _, number = node.rpartition(".")
    cause = of_computed(scene, node)
    event = scene.event(f"node.{head if number.isdigit() else node}") if not moved else None
    return replace(cause, event=event)


def of_received(scene: Scene, name: str) -> Cause:
    """A received message differs, or its sender."""
    at, call, found = scene.at, name, "from any source"
    if sources := scene.sources(name):
        which, *taken = at.occurrence, *sources
    elif probe := scene.probed() if "recv" in name.partition(" ")[0].lower() else None:
        call, which, *taken = probe
        found = f"that {call} found"
    if sources or probe:
        why = [
            f"message {which + 1} {found} came from rank {taken[0]} in one run, from rank {taken[1]} in the other",
            "messages may come in any order; a replay keeps the recorded one (fpna run --replay)",
        ]
        judgement = _of_messages(scene, name)
        return Cause(ORDER, at, call, scene.rank, scene.event(name), tuple(why), rounding=judgement)
    here, there = scene.neighbours(name)
    if here is not None and there is not None and here != there:
        why = [
            f"it receives from {_ranks(here)} in one run, from {_ranks(there)} in the other: its neighbours differ"
        ]
        return Cause(KERNEL, at, name, scene.rank, scene.event(name), tuple(why))
    near = () if there is None else (_whose(there),)
    if not scene.recorded_as_sent(name):
        why = [f"{which_ranks(scene)} received other bits, and all that was recorded before is equal"]
        advice = scene.advice("what was sent")
        return Cause(KERNEL, at, name, scene.rank, scene.event(name), (*why, *near), HALO, advice)
    why = [
        f"before the exchange every block held the same bits in both runs ({SENT}{name})",
        f"after it {which_ranks(scene)} received other bits around {which_blocks(scene)}",
    ]
    return Cause(HALO, scene.at, name, scene.rank, scene.event(name), (*why, *near))


def _ranks(neighbours: list[int]) -> str:
    """`ranks 1, 1, 3`, as neighbours of a rank; a rank may be several times among them."""
    real = [str(rank) if rank >= 0 else "outside MPI_COMM_WORLD" for rank in neighbours if rank != -1]
    shown = ", ".join(real[:SHOWN]) + (", ..." if len(real) > SHOWN else "")
    return f"{'rank' if len(real) == 1 else 'ranks'} {shown}" if real else "no rank"


def _whose(neighbours: list[int]) -> str:
    """What is known about the neighbours from which a rank received other bits."""
    one = len({rank for rank in neighbours if rank != -1}) < 2
    unknown = "" if one else "; their parts have one hash, so the records do not say whose part differs"
    return f"it receives from its neighbours, {_ranks(neighbours)}{unknown}"


def _of_messages(scene: Scene, name: str) -> Judgement:
    """Judges whether rounding explains the effect of messages in another order.

    Takes the next array that differs and is not itself such a message."""
    found: list[tuple[int, int, Point]] = []
    a, b = scene.comparison.a, scene.comparison.b
    skipped = {f"{RECEIVED}{name}"} | by_arrival(scene.frames, a, b)
    for other in set(scene.frames.recorded("fingerprints", *b)) - skipped:
        for step in (scene.at.step, scene.at.step + 1):
            sides = [scene.frames.segment("fingerprints", *run, other, step) for run in (a, b)]
            both = sides[0].merge(sides[1], on=["occurrence", "block"], suffixes=("", "_b"))
            both = both[(both["hi"] != both["hi_b"]) | (both["lo"] != both["lo_b"])]
            for row in both.sort_values(["seq", "block"]).head(1).to_dict("records"):
                point = Point(
                    step, other, row["block"], row["occurrence"], row["rank"], row["rank_b"], row["seq"], 1, 1
                )
                found.append((step, row["seq"], point))
    if not found:
        return Judgement(OPEN, None, "no array that was recorded afterwards shows the effect of the order")
    point = min(found, key=lambda each: each[:2])[2]
    judgement = rounding.of_local(*scene.sizes(point))
    return replace(judgement, why=f"of {point.name}, which differs next, {judgement.why}")


def of_total(scene: Scene, name: str) -> Cause:
    """The total of a reduction differs."""
    at, event = scene.at, scene.event(scene.region(name))
    call = f"call {at.occurrence + 1} of {name} in the step"
    a, b = int(scene.a["size"]), int(scene.b["size"])
    ordering = json.loads(scene.b["reductions"]).get(name, {}).get("ordering")
    pair, runs = scene.sizes(), (scene.comparison.a, scene.comparison.b)
    given = sized.given(scene.frames, *runs, at, name)
    how = sized.sum_of(scene.a, scene.b, name, pair[1].dtype if pair[1] and pair[1].count else "")
    judgement = rounding.of_total(*pair, how, given, sized.largest(scene.frames, *runs))
    why = [f"the total of {call} differs"]
    if given.equal:
        why.append("its contributions are equal")
    elif given.equal is None:
        why.append(
            "contributions to it were not recorded in both runs"
            if a == b
            else "its contributions cannot be compared"
        )
    else:
        why.append(f"the contributions of {a} and {b} ranks differ")
    found = Cause(COLLECTIVE, at, name, None, event, (), rounding=judgement)
    order = scene.order(name, at.occurrence)
    if order and all(order) and judgement.verdict != NOT_ROUNDING:
        why.append("the recorded order in which contributions were added differs")
        return replace(found, kind=ORDER, why=tuple(why))
    if scene.a["ordering"] != scene.b["ordering"]:
        why.append(f"the orderings are {scene.a['ordering']} and {scene.b['ordering']}")
    if order == (False, True):
        why.append("the recorded order is the same")
    if given.equal and judgement.verdict == NOT_ROUNDING:  # a wrong sum, or memory that changed under it
        return replace(found, why=tuple(why))
    no_order = "" if given.nan else rounding.order_cannot(how, *pair)
    if a != b and not given.equal:
        return _over_other_ranks(found, why, how, judgement, no_order)
    if order == (False, True):
        return replace(found, why=tuple(why))
    if ordering == LIBRARY and not no_order:
        compares = how.operation in (*rounding.EXTREMES, *rounding.PAIRED)
        order_of = "the order of its comparisons" if compares else "its order"
        why.append(f"the MPI library chooses {order_of}, by length, ranks and network")
    if ordering in (LIBRARY, OF_RANKS):
        return replace(found, why=tuple(why))
    reason = "the order of addition inside it was not recorded (--allreduce arrival records it)"
    return replace(found, why=tuple(why), instead=ORDER, instead_why=reason)


def of_global(scene: Scene, name: str) -> Cause:
    """An array that ranks hold together, gather or scatter differs."""
    call, _, held = name.rpartition(", ")
    why = [f"{held} in {call}, of all ranks together, differ", "no sum that was compared before it differs"]
    a, b = scene.sizes()
    judgement = rounding.of_local(a, b)
    if a and b and judgement.verdict == OPEN and rounding.rearranged(a, b):
        why.append(
            "their largest and the sum of their sizes are equal: they may be the same numbers in another order"
        )
    return Cause(KERNEL, scene.at, call, None, scene.event(call), tuple(why), rounding=judgement)


def _over_other_ranks(
    found: Cause, why: list[str], how: rounding.Sum, judgement: Judgement, no_order: str
) -> Cause:
    """The cause if a total differs between runs on different numbers of ranks with different contributions.

    `no_order` is the reason why no order changes the total; empty if an order can."""
    a, b = how.ranks
    if judgement.verdict == NOT_ROUNDING:
        return replace(found, kind=KERNEL, why=(*why, "so a rank computed something else"))
    if judgement.verdict == ROUNDING and how.operation in rounding.ADDED_UP and not no_order:
        why.append(f"{a} and {b} ranks group the additions in other ways")
        return replace(
            found, why=tuple(why), instead=KERNEL, instead_why="what a rank added before it gave its part"
        )
    if (how.unknown or how.operation in rounding.ADDED_UP) and not no_order:
        reason = "no order of the contributions was seen to matter"
        return replace(found, kind=UNDECIDED, why=tuple(why), instead=KERNEL, instead_why=reason)
    whole = how.dtype and how.dtype not in rounding.UNITS
    reason = (
        "whole numbers may count or choose by rounded ones"
        if whole
        else "partial sums of other ranks round otherwise"
    )
    return replace(found, kind=KERNEL, why=tuple(why), instead=INSIDE, instead_why=reason)


def of_block(scene: Scene, name: str) -> Cause:
    """A block differs that was equal in its last record: the cause is what ran in between."""
    at, before = scene.at, scene.preceding()
    who = f"rank {scene.rank}"
    why = [f"it differs in {which_blocks(scene)} on {which_ranks(scene)}"]
    if not before.known:
        why.append("no events were recorded, so that nothing tells what ran before it")
        return Cause(
            KERNEL, at, name, scene.rank, None, tuple(why), MEMORY, "a run with --trace regions can tell"
        )
    if before.since is not None:
        why.append(f"the last record of the block, {before.since[1]} at step {before.since[0]}, is equal")
    worked = [event for event in before.ended if event.kind not in NO_WORK]
    if not worked and not at.name.startswith(ADDED):
        why.append(
            f"nothing ran on {who} in between"
            + (f" ({event_names(before.ended)} ended)" if before.ended else "")
        )
        instead, reason = "", ""
        if at.name.startswith(SENT):
            instead, reason = (
                KERNEL,
                "what is sent may be made of the state by a kernel that is no region of its own",
            )
        return Cause(MEMORY, at, name, scene.rank, None, tuple(why), instead, reason)
    local = [event for event in worked if event.kind not in WAITING]
    event = local[-1] if local else before.inside
    if event is not None:
        why.append(f"in between {who} ran {event.name}")
    return Cause(KERNEL, at, event.name if event else name, scene.rank, event, tuple(why))
