"""What made two runs part: the class of the first difference, the event that made it, and why we say so.

| class | evidence |
|---|---|
| `method` | the runs were told to compute in different ways, or chose these from a clock: it may be as intended |
| `environment` | processors, libraries or settings differ, for which no bits are promised |
| `input` | what a run starts from differs (`input:*`), or its first records do, before any event |
| `local kernel` | the result of a kernel differs, or what one rank's blocks hold, and nothing they were given does |
| `halo exchange` | every block sent the same, and some received something else: a message lost or changed |
| `message order` | equal contributions, another total, and another recorded order of arrival of that very sum; |
| | or a receive from any source took another rank's message |
| `collective` | equal contributions and another total, without such an order: another schedule, or a wrong sum |
| `memory` | the state changed between two records, although nothing ran on it: a flipped bit |

A run with `--record messages` holds a record at every one of these places (miniapps.runner.watch), and the first record
that differs is the answer. Runs that record only states are judged by what differs after the step, which leaves more
than one answer: the other one is then named too. What was recorded of methods and environments is asked first: where
these differ, a kernel or a sum is only where it shows. A lost message is told apart from a local kernel, although a
halo exchange computes nothing, because who has to repair it is another.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.divergence import preceding
from analysis.divergence.compare import Comparison, Point
from analysis.divergence.preceding import NO_WORK, Event, Preceding
from analysis.divergence.unlike import choices, environments, methods, unlike
from analysis.load.frames import Frames
from analysis.load.timeline import WAITING, WITH_PARTNERS
from kernels import bits
from miniapps.trace.records import ADDED, COMPUTED, INPUT, NODE, RECEIVED, SENT, SOURCE, TOTAL
from miniapps.trace.schema import COLLECTIVE as SUMS

KERNEL, COLLECTIVE, ORDER, HALO, MEMORY, FROM_INPUT = (
    "local kernel", "collective", "message order", "halo exchange", "memory", "input"
)  # fmt: skip
METHOD, ENVIRONMENT = "method", "environment"
# Relative difference up to which another order of addition explains what differs after one step: 2^13 roundings.
ROUNDING = 2.0**-40
SHOWN = 4  # blocks, or names, listed
# Orderings of reductions of programs that run as they are (miniapps.programs.calltrace).
LIBRARY, OF_RANKS = "library", "tree over ranks"


@dataclass(frozen=True)
class Cause:
    """The class of the first difference and its place, in the second run of a comparison.

    `at` is the record by which it was found, `name` the kernel, exchange or reducer, `rank` the one that did it, None
    where all ranks do it together; `event` its region, None where events were not recorded. `instead`: the class that
    the evidence does not rule out, with the reason, empty where it rules out all others.
    """

    kind: str
    at: Point
    name: str
    rank: int | None
    event: Event | None
    why: tuple[str, ...]
    instead: str = ""
    instead_why: str = ""

    @property
    def step(self) -> int:
        """The step in which it happened, as far as known."""
        return self.at.step if self.event is None else self.event.step


def cause(frames: Frames, comparison: Comparison) -> Cause | None:
    """What made the runs of `comparison` part; None where they are equal."""
    at = comparison.first
    if at is None:
        return None
    scene = _Scene(frames, comparison, at)
    shown = _first_shown(scene)
    by_method = methods(scene.a, scene.b) + choices(frames, comparison)
    by_environment = environments(scene.a, scene.b)
    if not (by_method or by_environment):
        return shown
    where = shown.name if shown.kind == FROM_INPUT else f"{shown.name}, step {shown.step}"
    return replace(
        shown, kind=METHOD if by_method else ENVIRONMENT, rank=None, why=(*unlike(frames, comparison), *shown.why),
        name=", ".join(key for key, *_ in (by_method or by_environment)[:SHOWN]),
        instead=shown.kind, instead_why=f"it shows first in {where}; repeat both runs alike to see whether it stays",
    )  # fmt: skip


def _first_shown(scene: _Scene) -> Cause:
    """The class by the records alone."""
    at = scene.at
    for prefix, judge in (
        (INPUT, _input), (COMPUTED, _computed), (NODE, _node), (RECEIVED, _received), (TOTAL, _total), (ADDED, _within),
    ):  # fmt: skip
        if at.name.startswith(prefix):
            return judge(scene, at.name.removeprefix(prefix))
    judged = _within if scene.with_messages else _after_a_step
    return judged(scene, at.name.removeprefix(SENT))


class _Scene:
    """What the judges look at."""

    def __init__(self, frames: Frames, comparison: Comparison, at: Point):
        self.frames, self.comparison, self.at = frames, comparison, at
        runs = frames.runs.set_index(["run", "repeat"])
        self.a, self.b = runs.loc[comparison.a], runs.loc[comparison.b]
        self.rank, self.repeat = at.rank_b, comparison.b[1]
        self.table = "fingerprints" if at is comparison.fingerprint else "values"
        names = frames.recorded("fingerprints", *comparison.b)
        self.with_messages = any(name.startswith((SENT, TOTAL)) for name in names)

    def blocks(self) -> pd.DataFrame:
        """Columns block, rank (in the second run), differs: all records of this name and occurrence."""
        sides = []
        for run in (self.comparison.a, self.comparison.b):
            rows = self.frames.segment(self.table, *run, self.at.name, self.at.step)
            sides.append(rows[rows["occurrence"] == self.at.occurrence])
        both = sides[0].merge(sides[1], on="block", suffixes=("_a", "_b"))
        if self.table == "values":
            differs = bits.differ(both["value_a"].to_numpy(), both["value_b"].to_numpy())
        else:
            differs = ((both["hi_a"] != both["hi_b"]) | (both["lo_a"] != both["lo_b"])).to_numpy()
        return pd.DataFrame({"block": both["block"], "rank": both["rank_b"], "differs": differs})

    def event(self, name: str, call: int | None = None) -> Event | None:
        """The event `name` of this record, or another `call` of it in this step."""
        call = self.at.occurrence if call is None else call
        return preceding.nth(self.b["path"], self.repeat, self.rank, self.at.step, name, call)

    def region(self, reducer: str) -> str:
        """The region of a reduction, in the second run."""
        return json.loads(self.b["reductions"]).get(reducer, {}).get("region", reducer)

    def reducer(self, region: str) -> str:
        """The reduction of a region; the region itself where it is of none."""
        stated = json.loads(self.b["reductions"])
        return next((name for name, own in stated.items() if own.get("region") == region), region)

    def regrouped(self, region: str) -> bool:
        """Whether this planned reduction may have other bits in the second run because of its number of ranks."""
        own = json.loads(self.b["reductions"]).get(self.reducer(region), {})
        return self.a["size"] != self.b["size"] and own.get("guarantee") in ("none", "run")

    def sources(self, name: str) -> tuple[int, int] | None:
        """Whose message this receive from any source took, in both runs, where these are two ranks; else None."""
        sides = []
        for run in (self.comparison.a, self.comparison.b):
            rows = self.frames.segment("values", *run, f"{SOURCE}{name}", self.at.step)
            rows = rows[(rows["occurrence"] == self.at.occurrence) & (rows["block"] == self.at.block)]
            sides.append([int(value) for value in rows["value"]])
        return (sides[0][0], sides[1][0]) if all(sides) and sides[0] != sides[1] else None

    def recorded_as_sent(self, name: str) -> bool:
        """Whether the second run recorded what went into this exchange."""
        return f"{SENT}{name}" in self.frames.recorded("fingerprints", *self.comparison.b)

    def preceding(self) -> Preceding:
        return preceding.preceding(self.b["path"], self.repeat, self.rank, self.at)

    def order(self, reducer: str, call: int) -> tuple[bool, bool] | None:
        """(whether the recorded orders of a sum differ, whether they can be compared); None: not recorded."""
        sides = []
        for run in (self.comparison.a, self.comparison.b):
            rows = self.frames.of("order", *run)
            keep = (rows["step"] == self.at.step) & (rows["name"] == reducer) & (rows["occurrence"] == call)
            sides.append(rows["ranks"][keep].tolist())
        if not all(sides):
            return None
        (a,), (b,) = sides
        return a != b, len(a) == len(b)


def _input(scene: _Scene, name: str) -> Cause:
    why = [f"{name} differs in {_listed(scene)} as the run begins, before anything is computed"]
    return Cause(FROM_INPUT, scene.at, name, scene.rank, None, tuple(why))


def _computed(scene: _Scene, name: str) -> Cause:
    blocks = scene.blocks()
    why = [f"{name} gave other bits in {_listed(scene)}", "all that was recorded before it is equal"]
    instead, reason = "", ""
    if blocks["differs"].all() and len(blocks) > 1:
        instead = FROM_INPUT
        reason = (
            "every block differs at once, as with another build, library or a number that is not recorded"
        )
    return Cause(KERNEL, scene.at, name, scene.rank, scene.event(name), tuple(why), instead, reason)


def _node(scene: _Scene, name: str) -> Cause:
    """A value of a partitioned program: `NODE`, `NODE.K` of several results, `NODE@CUT` of one that was moved."""
    node, _, moved = name.partition("@")
    head, _, number = node.rpartition(".")
    cause = _computed(scene, node)
    event = scene.event(f"node.{head if number.isdigit() else node}") if not moved else None
    return replace(cause, event=event)


def _received(scene: _Scene, name: str) -> Cause:
    at = scene.at
    if sources := scene.sources(name):
        why = [
            f"message {at.occurrence + 1} from any source is of rank {sources[0]} in one run, of rank "
            f"{sources[1]} in the other",
            "messages come in any order; a replay keeps the recorded one (fpna run --replay)",
        ]
        return Cause(ORDER, at, name, scene.rank, scene.event(name), tuple(why))
    if not scene.recorded_as_sent(name):
        why = [f"{_ranks(scene)} received other bits, and all that was recorded before is equal"]
        advice = "record what was sent to tell them apart (fpna run --point-to-point)"
        return Cause(KERNEL, at, name, scene.rank, scene.event(name), tuple(why), HALO, advice)
    why = [
        f"before the exchange every block held the same bits in both runs ({SENT}{name})",
        f"after it {_ranks(scene)} holds something else around {_listed(scene)}",
    ]
    return Cause(HALO, scene.at, name, scene.rank, scene.event(name), tuple(why))


def _total(scene: _Scene, name: str) -> Cause:
    at, event = scene.at, scene.event(scene.region(name))
    call = f"call {at.occurrence + 1} of {name} in the step"
    a, b = int(scene.a["size"]), int(scene.b["size"])
    ordering = json.loads(scene.b["reductions"]).get(name, {}).get("ordering")
    compared = "what was compared before it" if a != b else "what was contributed to it, and all before it,"
    why = [f"the total of {call} differs", f"{compared} is equal"]
    order = scene.order(name, at.occurrence)
    if order and all(order):
        why.append("the recorded order in which contributions were added differs")
        return Cause(ORDER, at, name, None, event, tuple(why))
    if a != b:
        why.append(f"{a} and {b} ranks group the contributions in other ways")
    if scene.a["ordering"] != scene.b["ordering"]:
        why.append(f"the orderings are {scene.a['ordering']} and {scene.b['ordering']}")
    if order == (False, True):
        why.append("the recorded order is the same")
        return Cause(COLLECTIVE, at, name, None, event, tuple(why))
    if ordering == LIBRARY:
        why.append(
            "the MPI library chooses its order, by length, ranks and network (fpna run --guarantee fixes it)"
        )
    if ordering in (LIBRARY, OF_RANKS):
        return Cause(COLLECTIVE, at, name, None, event, tuple(why))
    reason = "the order of addition inside it was not recorded (--allreduce arrival records it)"
    return Cause(COLLECTIVE, at, name, None, event, tuple(why), ORDER, reason)


def _within(scene: _Scene, name: str) -> Cause:
    """A block differs that was equal when it was last recorded: what ran on it in between?"""
    at, before = scene.at, scene.preceding()
    who = f"rank {scene.rank}"
    why = [f"it differs in {_listed(scene)} on {_ranks(scene)}"]
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
            f"nothing ran on {who} in between" + (f" ({_names(before.ended)} ended)" if before.ended else "")
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


def _after_a_step(scene: _Scene, name: str) -> Cause:
    """Only states are recorded: judged by what differs once a step is over."""
    at, comparison, before = scene.at, scene.comparison, scene.preceding()
    blocks = scene.blocks()
    differing, count = int(blocks["differs"].sum()), len(blocks)
    worked = [event for event in before.ended if event.kind not in NO_WORK]
    sums = [event for event in worked if event.kind == SUMS]
    exchanges = [event for event in worked if event.kind in WITH_PARTNERS]
    local = [event for event in worked if event not in sums and event not in exchanges]
    advice = "record messages to tell them apart (--record messages)"
    why = [
        f"it differs in {_listed(scene)}"
        if at.block >= 0
        else f"{at.name}, a number of the whole run, differs"
    ]
    why += [f"between this record and the last one ended {_names(worked)}"] if worked else []
    if not worked and before.known and before.since is None:
        return Cause(FROM_INPUT, at, name, scene.rank, None, (*why, "no event ended before it"))
    if comparison.order and comparison.order[0] <= at.step:
        step, reducer, call, *_ = comparison.order
        why.append(f"the recorded order of {reducer} differs first, at step {step}, call {call + 1}")
        event = preceding.nth(scene.b["path"], scene.repeat, scene.rank, step, scene.region(reducer), call)
        return Cause(
            ORDER, at, reducer, None, event, tuple(why), KERNEL, f"the order need not matter; {advice}"
        )
    owners = blocks["rank"][blocks["differs"]].unique()
    if at.block >= 0 and differing == 1 < count:
        if sums and not _other_names_differ(scene):
            why.append(
                f"nothing else does, although {sums[-1].name} came in between and carries differences to all"
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
    if differing == count and (moved := [event for event in sums if scene.regrouped(event.name)]):
        why.append(
            f"{scene.a['size']} and {scene.b['size']} ranks group the contributions to {_names(moved)} in other ways, "
            "for which no equal bits are promised"
        )
        reducer = scene.reducer(moved[0].name)
        return Cause(COLLECTIVE, at, reducer, None, moved[0], tuple(why), KERNEL, advice)
    size, point = _largest(scene)
    if size > ROUNDING:
        block = point.block if point is not None and point.block >= 0 else at.block
        why.append(f"the difference, {size:.2g} relative, is more than another order of addition makes")
        event = local[-1] if local else None
        if block >= 0 and block != at.block:
            why.append(f"it is largest in block {block}")
        return Cause(KERNEL, at, event.name if event else name, scene.rank, event, tuple(why), HALO, advice)
    if sums:
        why.append("the difference is as small as another order of addition makes")
        reducer = scene.reducer(sums[-1].name)
        return Cause(COLLECTIVE, at, reducer, None, sums[-1], tuple(why), KERNEL, advice)
    event = local[-1] if local else None
    return Cause(KERNEL, at, event.name if event else name, scene.rank, event, tuple(why), "", "")


def _other_names_differ(scene: _Scene) -> bool:
    """Whether blocks differ in this step under another name of what is recorded by block."""
    a, b, step = scene.comparison.a, scene.comparison.b, scene.at.step
    for name in set(scene.frames.recorded("fingerprints", *b)) - {scene.at.name}:
        sides = [scene.frames.segment("fingerprints", *run, name, step) for run in (a, b)]
        both = sides[0].merge(sides[1], on=["occurrence", "block"], suffixes=("_a", "_b"))
        if ((both["hi_a"] != both["hi_b"]) | (both["lo_a"] != both["lo_b"])).any():
            return True
    return False


def _largest(scene: _Scene) -> tuple[float, Point | None]:
    """The largest relative difference of a value at the first differing step; infinite for NaN against a number."""
    points = [
        p
        for p in (*scene.comparison.values, scene.comparison.largest, scene.comparison.value)
        if p is not None
    ]
    points = [p for p in points if p.step == scene.at.step]
    if not points:
        return 0.0, None
    sizes = [float(bits.relative_difference(p.a, p.b)) for p in points]
    most = int(np.argmax(np.nan_to_num(sizes, nan=np.inf)))
    return (np.inf if np.isnan(sizes[most]) else sizes[most]), points[most]


def _listed(scene: _Scene) -> str:
    """`block 5`, `blocks 1, 2 (2 of 64)`."""
    blocks = scene.blocks()
    differing = blocks["block"][blocks["differs"]].tolist()
    if scene.at.block < 0:
        return scene.at.name
    if len(differing) == len(blocks) > 1:
        return f"all {len(blocks)} blocks"
    shown = ", ".join(map(str, differing[:SHOWN])) + (", ..." if len(differing) > SHOWN else "")
    noun = "block" if len(differing) == 1 else "blocks"
    return f"{noun} {shown} ({len(differing)} of {len(blocks)})"


def _ranks(scene: _Scene) -> str:
    blocks = scene.blocks()
    ranks = sorted(set(blocks["rank"][blocks["differs"]].tolist()))
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"


def _names(events) -> str:
    names = list(dict.fromkeys(event.name for event in events))
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
