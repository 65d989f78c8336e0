"""Schedules of a pipeline: the order in which each rank computes the stages and micro-batches that it owns.

| schedule | a rank | holds the values of |
|---|---|---|
| `gpipe` | computes all forward passes, then all backward passes | all micro-batches |
| `1f1b` | has begun at most as many micro-batches as ranks follow, itself included | so many micro-batches |
| `circular` | owns stages in turn; micro-batches go around in groups | at most about twice as many |

Sources: Huang et al. 2019, GPipe, arXiv 1811.06965; Narayanan et al. 2019, PipeDream; GSPMD section 3.3, and
Narayanan et al. 2021, arXiv 2104.04473.

    order = scheduled(plan, mesh)          # pairs (stage, step), in an order for all ranks; a rank executes its stages
    steps = steps_of(plan, mesh, rank)     # the steps of a rank

A task is one pass of one micro-batch through one stage. `simulate` lets every rank choose among its tasks that can
start, and so gives all ranks one order in which each task follows those that it needs. Sends do not wait, so no order
of this kind can block. No bit depends on it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from miniapps.partition.cuts.mesh import CIRCULAR, GPIPE, Mesh
from miniapps.partition.cuts.steps import (
    BACKWARD,
    FORWARD,
    HEAD,
    STAGE,
    TAIL,
    Compute,
    Plan,
    Receive,
    Send,
    Step,
    step_operands,
    step_results,
)

Job = tuple[int, int, str]  # the stage, the micro-batch and the pass of a task
COST = {FORWARD: 1, BACKWARD: 2}  # time of a pass over a layer


@dataclass
class Load:
    """The steps of a task, with their numbers in the plan, and the tasks that it needs."""

    steps: list[tuple[int, Step]] = field(default_factory=list)
    needs: set[Job] = field(default_factory=set)


@dataclass(frozen=True)
class Slot:
    """A simulated task: when it starts and ends, on which rank along the stages."""

    place: Job
    rank: int
    start: float
    end: float


def steps_of(plan: Plan, mesh: Mesh, rank: int) -> tuple[Step, ...]:
    """The steps that a rank executes, in its order."""
    if not plan.stages:
        return plan.steps
    own = set(mesh.own(plan.axis(STAGE), rank))
    return tuple(step for stage, step in scheduled(plan, mesh) if stage in own)


def scheduled(plan: Plan, mesh: Mesh) -> list[tuple[int, Step]]:
    """All steps with the stage at which each is executed, once for each rank along the stages; only the messages
    between different ranks, a value once to each."""
    if not plan.stages:
        return [(0, step) for step in plan.steps]
    axis = plan.axis(STAGE)
    owners = mesh.owners(axis).tolist()
    loads = loads_of(plan)
    layers = [b - a for a, b in zip(axis.starts, axis.starts[1:], strict=False)]
    passes = {place for place in loads if place[2] in COST}
    times = simulate(
        {place: load.needs & passes for place, load in loads.items() if place in passes},
        owners,
        lambda place: COST[place[2]] * layers[place[0]],
        mesh.schedule,
    )
    order = [
        *together(loads, HEAD),
        *(
            (slot.place[0], step)
            for slot in sorted(times, key=lambda t: (t.start, t.end, t.place))
            for _, step in sorted(loads[slot.place].steps, key=lambda pair: pair[0])
        ),
        *together(loads, TAIL),
    ]
    return once(order, plan, owners)


def together(loads: Mapping[Job, Load], passes: str) -> list[tuple[int, Step]]:
    """The steps of all stages before, or after, all micro-batches, in the order of the plan."""
    found = [
        (number, place[0], step)
        for place, load in loads.items()
        if place[2] == passes
        for number, step in load.steps
    ]
    return [(stage, step) for _, stage, step in sorted(found, key=lambda each: each[:2])]


def once(order: Sequence[tuple[int, Step]], plan: Plan, owners: Sequence[int]) -> list[tuple[int, Step]]:
    """The order without steps that a rank has executed for another of its stages, and without messages of values that
    it has."""
    had = {(name, owners[stage]) for name, stages in plan.stages.items() for stage in stages}
    real: set[tuple[str, int, int]] = set()
    for _, step in order:
        if isinstance(step, Receive) and (key := (step.operands[0], owners[step.target])) not in had:
            had.add(key)
            real.add((step.operands[0], step.source, step.target))
    done: set[tuple[int, int]] = set()
    kept: list[tuple[int, Step]] = []
    for stage, step in order:
        if isinstance(step, Send | Receive):
            if (step.operands[0], step.source, step.target) in real:
                kept.append((stage, step))
        elif (here := (id(step), owners[stage])) not in done:
            done.add(here)
            kept.append((stage, step))
    return kept


def loads_of(plan: Plan) -> dict[Job, Load]:
    """The tasks of a plan: each operation in its own task; reductions and reshards after the last of their operands; a
    value is sent as soon as it exists, and received where it is read."""
    loads: dict[Job, Load] = {}
    last = max((m for m, passes in plan.tasks.values() if passes != TAIL), default=0) + 1
    maker: dict[tuple[str, int], Job] = {}
    sent: dict[tuple[str, int, int], Job] = {}
    ranks = {HEAD: 0, FORWARD: 1, BACKWARD: 1, TAIL: 2}

    def later(jobs: list[Job]) -> Job:
        return max(jobs, key=lambda p: (ranks[p[2]], p[1], p[2] == BACKWARD))

    def put(place: Job, number: int, step: Step, reads: list[Job]) -> None:
        load = loads.setdefault(place, Load())
        load.steps.append((number, step))
        load.needs.update(other for other in reads if other != place)

    for number, step in enumerate(plan.steps):
        if isinstance(step, Send):
            name = step.operands[0]
            place = maker.get((name, step.source), (step.source, -1, HEAD))
            sent[name, step.source, step.target] = place
            put(place, number, step, [])
            continue
        if isinstance(step, Receive):
            name, task = step.operands[0], plan.tasks.get(step.node, (last, TAIL))
            place = step.target, *task
            put(place, number, step, [sent[name, step.source, step.target]])
            maker[name, step.target] = place
            continue
        for stage in plan.stages[step_results(step)[0]]:
            reads = [maker[name, stage] for name in step_operands(step) if (name, stage) in maker]
            if isinstance(step, Compute):
                place = stage, *plan.tasks[step.node]
            else:
                place = later(reads) if reads else (stage, -1, HEAD)
            put(place, number, step, reads)
            for name in step_results(step):
                maker[name, stage] = place
    return loads


def simulate(
    needs: Mapping[Job, set[Job]],
    owners: Sequence[int],
    seconds: Callable[[Job], float],
    schedule: str,
) -> list[Slot]:
    """The times of tasks, each of which starts when those in `needs` have ended and its rank is free. `owners`: the
    rank of each stage. Messages take no time."""
    count = max(owners) + 1
    lowest = [
        min((s for s, c in enumerate(owners) if c == rank), default=len(owners)) for rank in range(count)
    ]
    following = [sum(other >= mine for other in lowest if other < len(owners)) for mine in lowest]
    turns = in_turn(needs, owners, following) if schedule == CIRCULAR else []
    readers: dict[Job, list[Job]] = {}
    left = {place: len(before) for place, before in needs.items()}
    for place, before in needs.items():
        for other in before:
            readers.setdefault(other, []).append(place)
    ready: list[set[Job]] = [set() for _ in range(count)]
    for place, n in left.items():
        if not n:
            ready[owners[place[0]]].add(place)
    forwards = [0] * count
    inside: list[set[int]] = [set() for _ in range(count)]  # micro-batches that a rank has begun
    waiting = [dict[int, int]() for _ in range(count)]  # tasks of a micro-batch that a rank has not ended
    for stage, micro, passes in needs:
        forwards[owners[stage]] += passes == FORWARD
        by = waiting[owners[stage]]
        by[micro] = by.get(micro, 0) + 1

    def may(rank: int, place: Job) -> bool:
        if schedule == GPIPE:
            return place[2] == FORWARD or not forwards[rank]
        if schedule == CIRCULAR:
            return turns[rank][0] == place
        return place[1] in inside[rank] or len(inside[rank]) < following[rank]

    def by_order(rank: int, place: Job) -> tuple:
        stage, micro, passes = place
        if schedule == CIRCULAR:
            return (turns[rank].index(place),)
        if schedule == GPIPE:
            return micro, stage if passes == FORWARD else -stage
        return (0, micro, -stage) if passes == BACKWARD else (1, micro, stage)

    free = [True] * count
    ends: list[tuple[float, Job]] = []
    found: list[Slot] = []
    now: float = 0
    while len(found) < len(needs):
        for only in (True, False):  # without a task that may start, the first one that can
            for rank in range(count):
                fitting = [job for job in ready[rank] if not only or may(rank, job)] if free[rank] else []
                if not fitting or not (only or not ends):
                    continue
                place = min(fitting, key=lambda other: by_order(rank, other))
                ready[rank].remove(place)
                free[rank] = False
                if turns:
                    turns[rank].remove(place)
                inside[rank].add(place[1])
                found.append(Slot(place, rank, now, now + seconds(place)))
                heapq.heappush(ends, (now + seconds(place), place))
        if not ends:
            raise ValueError("tasks of a pipeline need each other in a circle")
        now = ends[0][0]
        while ends and ends[0][0] == now:
            _, place = heapq.heappop(ends)
            rank = owners[place[0]]
            free[rank] = True
            forwards[rank] -= place[2] == FORWARD
            waiting[rank][place[1]] -= 1
            if not waiting[rank][place[1]]:
                inside[rank].discard(place[1])
            for other in readers.get(place, ()):
                left[other] -= 1
                if not left[other]:
                    ready[owners[other[0]]].add(other)
    return found


def in_turn(
    needs: Mapping[Job, set[Job]], owners: Sequence[int], following: Sequence[int]
) -> list[list[Job]]:
    """The tasks of each rank in their order for stages owned in turn (Narayanan et al. 2021, arXiv
    2104.04473): micro-batches in groups as large as the number of ranks; forward passes until the first gradient can
    arrive, then forward and backward passes in turn."""
    count = len(following)
    turns = []
    for rank in range(count):
        own = sorted(stage for stage, owner in enumerate(owners) if owner == rank)
        mine = [place for place in needs if owners[place[0]] == rank]
        forward = sorted(
            (place for place in mine if place[2] == FORWARD), key=lambda p: (p[1] // count, p[0], p[1])
        )
        backward = sorted(
            (place for place in mine if place[2] == BACKWARD), key=lambda p: (p[1] // count, -p[0], p[1])
        )
        first = 2 * (following[rank] - 1) + (len(own) - 1) * count
        order = forward[:first]
        for ahead, back in zip_longest(forward[first:], backward):
            order += [place for place in (ahead, back) if place is not None]
        turns.append(order)
    return turns


def chain(stages: int, micro_batches: int) -> dict[Job, set[Job]]:
    """The tasks of a pipeline in which each stage needs the one before it, and what each needs."""
    needs: dict[Job, set[Job]] = {}
    for m in range(micro_batches):
        for s in range(stages):
            needs[s, m, FORWARD] = {(s - 1, m, FORWARD)} if s else set()
            after = {(s + 1, m, BACKWARD)} if s + 1 < stages else set()
            needs[s, m, BACKWARD] = {(s, m, FORWARD), *after}
    return needs
