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
| `collective` | equal contributions and another total, without such an order: another schedule, or a wrong sum; |
| | or a total over another number of ranks that differs as little as rounding makes it |
| `contributions or order` | a total over another number of ranks that differs by more, so that rounding would have to |
| | be amplified by what a rank added |
| `memory` | the state changed between two records, although nothing ran on it: a flipped bit |

A run with `--record messages` holds a record at every one of these places (miniapps.runner.watch), and the first record
that differs is the answer. Runs that record only states are judged by what differs after the step, which leaves more
than one answer: the other one is then named too. What was recorded of methods and environments is asked first: where
these differ, a kernel or a sum is only where it shows. A lost message is told apart from a local kernel, although a
halo exchange computes nothing, because who has to repair it is another.

Whether rounding explains the difference is judged from the sizes of the numbers (`analysis.divergence.rounding`), after
operation, type and guarantee were asked whether an order can change the total at all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.divergence import preceding, rounding, sized
from analysis.divergence.compare import FINAL, Comparison, Point, common_of
from analysis.divergence.later import farthest
from analysis.divergence.preceding import NO_WORK, Event, Preceding
from analysis.divergence.rounding import FEW, NOT_ROUNDING, OPEN, ROUNDING, Judgement
from analysis.divergence.unlike import choices, environments, methods, unlike
from analysis.load.frames import Frames
from analysis.load.timeline import WAITING, WITH_PARTNERS
from kernels import bits
from miniapps.trace.records import ADDED, COMPUTED, INPUT, NODE, RECEIVED, SENT, SOURCE, TOTAL, WHOLE
from miniapps.trace.schema import COLLECTIVE as SUMS

KERNEL, COLLECTIVE, ORDER, HALO, MEMORY, FROM_INPUT = (
    "local kernel", "collective", "message order", "halo exchange", "memory", "input"
)  # fmt: skip
METHOD, ENVIRONMENT = "method", "environment"
UNDECIDED, INSIDE = "contributions or order", "order inside a rank"
SHOWN = 4  # blocks, or names, listed
# Orderings of reductions of programs that run as they are (miniapps.programs.calltrace).
LIBRARY, OF_RANKS = "library", "tree over ranks"


LONG = 120  # characters of a command that is shown
GROWN = 4 * FEW  # units in the last place from which on a later difference has to be explained, too
UNJUDGED = Judgement(OPEN, None, "")


@dataclass(frozen=True)
class Cause:
    """The class of the first difference and its place, in the second run of a comparison.

    `at` is the record by which it was found, `name` the kernel, exchange or reducer, `rank` the one that did it, None
    where all ranks do it together; `event` its region, None where events were not recorded. `instead`: the class that
    the evidence does not rule out, with the reason, empty where it rules out all others. `rounding`: whether rounding
    explains the difference; `next`: what to do now.
    """

    kind: str
    at: Point
    name: str
    rank: int | None
    event: Event | None
    why: tuple[str, ...]
    instead: str = ""
    instead_why: str = ""
    rounding: Judgement = UNJUDGED
    next: str = ""

    @property
    def step(self) -> int:
        """The step in which it happened, as far as known."""
        return self.at.step if self.event is None else self.event.step


def cause(frames: Frames, comparison: Comparison) -> Cause | None:
    """What made the runs of `comparison` part; None where they are equal."""
    at = comparison.first
    if at is None or at.name == FINAL:
        return None
    scene = _Scene(frames, comparison, at)
    shown = _grown(scene, _judged(scene, _first_shown(scene)))
    by_method = methods(scene.a, scene.b) + choices(frames, comparison)
    by_environment = environments(scene.a, scene.b)
    if not (by_method or by_environment):
        return replace(shown, next=_next(scene, shown))
    where = shown.name if shown.kind == FROM_INPUT else f"{shown.name}, step {shown.step}"
    return replace(
        shown, kind=METHOD if by_method else ENVIRONMENT, rank=None, why=(*unlike(frames, comparison), *shown.why),
        name=", ".join(key for key, *_ in (by_method or by_environment)[:SHOWN]),
        instead=shown.kind, instead_why=f"it shows first in {where}; repeat both runs alike to see whether it stays",
        next="repeat both runs with one method in one environment, and compare these",
    )  # fmt: skip


def _first_shown(scene: _Scene) -> Cause:
    """The class by the records alone."""
    at = scene.at
    for prefix, judge in (
        (INPUT, _input), (COMPUTED, _computed), (NODE, _node), (RECEIVED, _received), (SOURCE, _received),
        (TOTAL, _total), (WHOLE, _whole), (ADDED, _within),
    ):  # fmt: skip
        if at.name.startswith(prefix):
            return judge(scene, at.name.removeprefix(prefix))
    judged = _within if scene.with_messages else _after_a_step
    return judged(scene, at.name.removeprefix(SENT))


def _judged(scene: _Scene, shown: Cause) -> Cause:
    """`shown`, with the judgement of its difference where its judge has left that out."""
    if shown.rounding.why:
        return shown
    if shown.kind in (MEMORY, HALO) and not shown.instead:
        return replace(shown, rounding=rounding.of_moved(*scene.sizes()))
    judgement = rounding.of_local(*scene.farthest())
    threads = json.loads(scene.b["method"]).get("run.threads")
    if shown.kind == KERNEL and not shown.instead and threads != 1 and judgement.amplification is not None:
        return replace(
            shown, rounding=judgement, instead=INSIDE,
            instead_why="threads or atomic additions that add in another order, which no record tells",
        )  # fmt: skip
    return replace(shown, rounding=judgement)


def _command(run: pd.Series) -> str:
    """What `fpna run` started, as far as that fits into a line; COMMAND for other programs."""
    command = str(json.loads(run["environment"]).get("command", ""))
    observed = "program.sums" in json.loads(run["options"])
    return command if observed and 0 < len(command) <= LONG else "COMMAND"


def _grown(scene: _Scene, shown: Cause) -> Cause:
    """`shown`, left open where rounding explains the first difference and a later one is many times as large: it may
    have grown, or something else may lie behind it."""
    if shown.rounding.verdict != ROUNDING:
        return shown
    a, b = scene.comparison.a, scene.comparison.b
    later = farthest(scene.frames, a, b, common_of(scene.frames, a, b))
    if later is None or later.amplification <= GROWN:
        return shown
    why = (
        f"{shown.rounding.why}; but {later.name} of step {later.step} lies {later.amplification:.2g} units in the last "
        "place apart: the difference grew, or something else lies behind it"
    )
    return replace(shown, rounding=Judgement(OPEN, later.amplification, why))


def _next(scene: _Scene, shown: Cause) -> str:
    """What to do now, in one line."""
    if shown.rounding.verdict == OPEN:
        runs = f"{scene.a['path']} {scene.b['path']}"
        return (
            f"launches that are disturbed as by rounding can tell: fpna cause {runs} -- {_command(scene.a)}"
        )
    if shown.rounding.verdict == NOT_ROUNDING:
        if shown.kind in (MEMORY, HALO):
            return "repeat the run: what memory or the network changed does not come back, and a bug does"
        return f"look for a bug, or another input, in or before {shown.name} of step {shown.step}"
    if scene.a["size"] != scene.b["size"]:
        return "a difference of this size needs no bug; fpna.wrap with rows makes sums equal (docs/own-programs.md)"
    if shown.kind in (COLLECTIVE, ORDER):
        return "a difference of this size needs no bug; a guarantee fixes the order of sums (--guarantee run)"
    return (
        "a difference of this size needs no bug; one thread, or sums in a fixed order, make such runs equal"
    )


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

    def sizes(self, at: Point | None = None) -> tuple[rounding.Size | None, rounding.Size | None]:
        """The sizes of this record, or of another, in both runs."""
        table = self.table if at is None or at is self.at else "fingerprints" if np.isnan(at.a) else "values"
        return sized.pair(self.frames, self.comparison.a, self.comparison.b, at or self.at, table)

    def farthest(self) -> tuple[rounding.Size | None, rounding.Size | None]:
        """The sizes in both runs of the block of this record that differs most."""
        if self.table == "values":
            return self.sizes()
        return sized.farthest(self.frames, self.comparison.a, self.comparison.b, self.at)

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

    def fixed(self, region: str) -> bool:
        """Whether the guarantee of this reduction leaves its contributions no order to choose, in both runs."""
        own = [json.loads(run["reductions"]).get(self.reducer(region), {}) for run in (self.a, self.b)]
        levels = {each.get("guarantee", "none") for each in own}
        return levels <= (
            {"layout", "exact"} if self.a["size"] != self.b["size"] else {"run", "layout", "exact"}
        )

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

    def advice(self, what: str) -> str:
        """Which record would tell two causes apart, by the command that made the run; without what it was given."""
        options, config = (json.loads(self.b[key]) for key in ("options", "config"))
        if "program.sums" in options:
            more = "" if self.recorded("MPI_Send", "MPI_Isend") else "fpna run --point-to-point"
        elif "recording.of_ranks" in options:
            more = "" if config["recording"].get("reductions") else "fpna.record(..., reductions=True)"
        else:
            more = "" if config.get("run", {}).get("record") == "messages" else "--record messages"
        return f"record {what} to tell them apart ({more})" if more else "no record tells them apart"

    def recorded(self, *calls: str) -> bool:
        """Whether the second run recorded what one of `calls` sent."""
        names = self.frames.recorded("fingerprints", *self.comparison.b)
        return any(name.startswith(tuple(f"{SENT}{call} at" for call in calls)) for name in names)

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
        return Cause(
            ORDER, at, name, scene.rank, scene.event(name), tuple(why), rounding=_of_messages(scene, name)
        )  # fmt: skip
    if not scene.recorded_as_sent(name):
        why = [f"{_ranks(scene)} received other bits, and all that was recorded before is equal"]
        advice = scene.advice("what was sent")
        return Cause(KERNEL, at, name, scene.rank, scene.event(name), tuple(why), HALO, advice)
    why = [
        f"before the exchange every block held the same bits in both runs ({SENT}{name})",
        f"after it {_ranks(scene)} holds something else around {_listed(scene)}",
    ]
    return Cause(HALO, scene.at, name, scene.rank, scene.event(name), tuple(why))


def _of_messages(scene: _Scene, name: str) -> Judgement:
    """Whether rounding explains what messages in another order led to: by the first array that differs afterwards and
    is not itself a message that the call `name` took."""
    found: list[tuple[int, int, Point]] = []
    a, b = scene.comparison.a, scene.comparison.b
    for other in scene.frames.recorded("fingerprints", *b):
        if other == f"{RECEIVED}{name}":
            continue
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
        return Judgement(OPEN, None, "no array that was recorded afterwards shows what the order led to")
    point = min(found, key=lambda each: each[:2])[2]
    judgement = rounding.of_local(*scene.sizes(point))
    return replace(judgement, why=f"of {point.name}, which differs next, {judgement.why}")


def _total(scene: _Scene, name: str) -> Cause:
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
        why.append("what was contributed to it is equal")
    elif given.equal is None:
        why.append(
            "contributions to it were not recorded in both runs"
            if a == b
            else "what ranks gave to it cannot be compared"
        )
    else:
        why.append(f"the contributions of {a} and {b} ranks are not the same")
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
    if a != b and not given.equal:
        return _over_other_ranks(found, why, how, judgement)
    if order == (False, True):
        return replace(found, why=tuple(why))
    if ordering == LIBRARY:
        why.append("the MPI library chooses its order, by length, ranks and network")
    if ordering in (LIBRARY, OF_RANKS):
        return replace(found, why=tuple(why))
    reason = "the order of addition inside it was not recorded (--allreduce arrival records it)"
    return replace(found, why=tuple(why), instead=ORDER, instead_why=reason)


def _whole(scene: _Scene, name: str) -> Cause:
    """What ranks hold, gather or scatter together, on any number of them."""
    call, _, held = name.rpartition(", ")
    why = [f"{held} in {call}, of all ranks together, differ", "no sum that was compared before it differs"]
    a, b = scene.sizes()
    judgement = rounding.of_local(a, b)
    if a and b and judgement.verdict == OPEN and rounding.rearranged(a, b):
        why.append(
            "their largest and the sum of their sizes are equal: they may be the same numbers in another order"
        )
    return Cause(KERNEL, scene.at, call, None, scene.event(call), tuple(why), rounding=judgement)


def _over_other_ranks(found: Cause, why: list[str], how: rounding.Sum, judgement: Judgement) -> Cause:
    """Of a total over another number of ranks, whose contributions are not the same."""
    a, b = how.ranks
    reason = "no order of the contributions was seen to matter"
    if judgement.verdict == NOT_ROUNDING:
        return replace(found, kind=KERNEL, why=(*why, "so a rank computed something else"))
    if judgement.verdict == ROUNDING and how.operation in rounding.ADDED_UP and how.guarantee != "exact":
        why.append(f"{a} and {b} ranks group the additions in other ways")
        return replace(
            found, why=tuple(why), instead=KERNEL, instead_why="what a rank added before it gave its part"
        )
    kind = (
        UNDECIDED
        if how.operation in (*rounding.ADDED_UP, *rounding.UNKNOWN) and how.guarantee != "exact"
        else KERNEL
    )
    if kind == KERNEL:
        return replace(
            found,
            kind=KERNEL,
            why=tuple(why),
            instead=INSIDE,
            instead_why="partial sums of other ranks round otherwise",
        )
    return replace(found, kind=kind, why=tuple(why), instead=KERNEL, instead_why=reason)


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
    advice = scene.advice("messages")
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
    point = _largest(scene)
    judgement = rounding.of_local(*scene.farthest())
    if judgement.amplification is None and point:
        judgement = rounding.of_local(*scene.sizes(point))
    if differing == count and (moved := [event for event in sums if scene.regrouped(event.name)]):
        why.append(
            f"{scene.a['size']} and {scene.b['size']} ranks group the contributions to {_names(moved)} in other ways, "
            "for which no equal bits are promised"
        )
        kind = COLLECTIVE if judgement.verdict == ROUNDING else UNDECIDED
        reducer = scene.reducer(moved[0].name)
        return Cause(kind, at, reducer, None, moved[0], tuple(why), KERNEL, advice, rounding=judgement)
    event = local[-1] if local else None
    free = [event for event in sums if not scene.fixed(event.name)]
    if sums and not free:
        why.append(f"no order changes {_names(sums)}, which the guarantee fixes")
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


def _other_names_differ(scene: _Scene) -> bool:
    """Whether blocks differ in this step under another name of what is recorded by block."""
    a, b, step = scene.comparison.a, scene.comparison.b, scene.at.step
    for name in set(scene.frames.recorded("fingerprints", *b)) - {scene.at.name}:
        sides = [scene.frames.segment("fingerprints", *run, name, step) for run in (a, b)]
        both = sides[0].merge(sides[1], on=["occurrence", "block"], suffixes=("_a", "_b"))
        if ((both["hi_a"] != both["hi_b"]) | (both["lo_a"] != both["lo_b"])).any():
            return True
    return False


def _largest(scene: _Scene) -> Point | None:
    """The value with the largest relative difference at the first differing step; None where no value differs there."""
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
