"""Kernels as plans call them: steps of plans, of one rank each, timed call by call (`miniapps.partition.pricing`).

The name of a region has the kernel and its size, `kernel mm own float32 float32 by 3@64x32x128`. `rest@...` is the time
of a step beyond its kernels; its size: calls, views, copies, and copied bytes. Names of works begin
with `disturbed` if something else used the core meanwhile (`miniapps.system.quantum`).

Plans for as many ranks as calibrate are run with all of them, too. `step PLAN` is the time of a whole step; the choice
of this name is its program (`miniapps.untrusted.program`), so that prices can be compared with these steps. They are
visited several times in a round, but for those that need much memory: where ranks share cores, short steps take several
times as long for a while. The first steps of a visit take some per cent longer than later ones, and runs do their steps
one after the other, so a visit is not short.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import nan
from typing import Any

import numpy as np
import torch

from miniapps.calibrate.cases import Case
from miniapps.calibrate.noise import record_quantum
from miniapps.calibrate.plans import drawn_from, draws_of
from miniapps.learning.optimisers import Adam
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import Plan
from miniapps.partition.planning.smaller.attention import RING
from miniapps.partition.pricing.keys import counts_of, recorded_of, rest_of, update_of, work_of
from miniapps.partition.pricing.program import program_of
from miniapps.partition.pricing.rehearse import Rehearsal, clock_of
from miniapps.partition.pricing.space import Drawn, prepared
from miniapps.partition.pricing.together import learner_of
from miniapps.system.quantum import undisturbed
from miniapps.trace.schema import OTHER
from miniapps.trace.writer import Tracer
from miniapps.untrusted.program import Work, to_json

TURNS = 2  # timed runs of a step in one round, after one that fills the caches
VISITS, VISIT_S = 5, 0.05  # of the steps of all ranks in one round; seconds of each, at least a step
WARM = 2  # steps before them, of what was made anew
ALIKE = 0.05  # difference of shares of a processor
DISTURBED = "disturbed "  # before the name of a region
STEP = "step "  # before the plan, in the name of a region


def program_cases(ctx) -> list[Case]:
    """Cases of drawn plans: a step of each, of rank 0 of its mesh; and of all ranks if they are as many."""
    options = ctx.config.calibrate
    comm, threads = ctx.comm, ctx.options.threads
    for draws in draws_of(options.plans, options.programs, ctx.seed) if ctx.rank == 0 else ():
        if sentence := draws.sentence():
            ctx.log.warning("--programs %s: %s", options.programs, sentence)
    found = []
    for own, step in drawn_from(options.plans, options.programs, ctx.seed):
        found += _cases(step, comm, threads) if own is None else _cases_of(own, step, comm, threads)
    return found


def _cases_of(own: Any, drawn: Any, comm, threads: int) -> list[Case]:
    """The cases of a step of an application, made anew in each round: several would need the memory of all."""

    def alone(tracer: Tracer) -> None:
        rehearsal = own.rehearsal(drawn, threads)
        before, seconds = undisturbed(), rehearsal.run()
        _write(tracer, seconds, good=before and undisturbed())
        rehearsal.close()

    def together(tracer: Tracer) -> None:
        step, free = own.together(comm, drawn, threads)
        for _ in range(WARM):
            step()
        _record_steps(tracer, name, comm, step, program, VISITS)
        free()

    found = [Case(f"program {drawn}", _nothing, {}, record=alone)]
    if drawn.ranks == comm.size:
        name, program = f"{STEP}{drawn}", to_json(own.program(drawn, threads)).decode()
        found.append(Case(name, _nothing, {}, record=together))
    return found


def _cases(drawn: Drawn, comm, threads: int) -> list[Case]:
    plan, mesh, inputs = prepared(drawn)
    # In causal attention block by block the last rank sees blocks as no other kernel of the first rank does.
    ranks = dict.fromkeys((0, mesh.size - 1 if drawn.attention == RING else 0))
    found = [_alone(drawn, plan, mesh, rank, inputs, threads) for rank in ranks]
    if mesh.size == comm.size:
        program = to_json(
            program_of(plan, mesh, drawn.level, str(drawn), threads=threads, wire=drawn.wire)
        ).decode()
        learner = learner_of(comm, drawn, plan, mesh, inputs, threads)
        name, free = f"{STEP}{drawn}", learner.program.free
        record = partial(_record_steps, name=name, comm=comm, step=learner.step, program=program)
        found.append(Case(name, learner.step, {}, record=record, free=free, visits=VISITS))
    return found


def _alone(
    drawn: Drawn, plan: Plan, mesh: Mesh, rank: int, inputs: Sequence[torch.Tensor], threads: int
) -> Case:
    rehearsal = Rehearsal(plan, mesh, rank, drawn.level, inputs, threads, wire=drawn.wire)
    learned = {key for key, _ in plan.gradients}
    pairs = zip(plan.sources, rehearsal.parts, strict=True)
    weights = [part.numpy() for source, part in pairs if source.kind == "parameter" and source.key in learned]
    works = [work_of(event) for event in rehearsal.timed]
    record = partial(
        _record,
        rehearsal=rehearsal,
        works=works,
        optimiser=Adam(weights),
        weights=weights,
        now=clock_of(threads),
    )
    name = f"program {drawn}" + f", rank {rank}" * (rank > 0)
    return Case(name, rehearsal.run, {}, record=record)


def _record_steps(
    tracer: Tracer, name: str, comm, step: Callable[[], object], program: str, visits: int = 1
) -> None:
    """Record the program, and steps with all ranks, as many as in so many visits."""
    tracer.choice(name, -1, program, nan)
    region, clock = tracer.name(name, OTHER), tracer.clock
    step()
    for _ in range(visits):
        end = clock() + round(1e9 * VISIT_S)
        going = True
        while going:
            record_quantum(tracer)
            comm.Barrier()
            start = clock()
            step()
            tracer.event(region, start)
            going = comm.bcast(clock() < end)


def _record(
    tracer: Tracer,
    rehearsal: Rehearsal,
    works: Sequence[Work],
    optimiser: Adam,
    weights: Sequence[np.ndarray],
    now: Callable[[], float],
) -> None:
    """Run a step TURNS times, each with what follows it, and record for each kernel and size the mean time of its
    calls, of those that nothing disturbed, if there are any. What follows runs before the first of them, too: it leaves
    less of the weights in the caches than a step does."""
    clock, name = tracer.clock, tracer.name("traced")
    elements, calls = [array.size for array in weights], len(works)
    gradients = [array.copy() for array in weights]
    fingerprint, finite, traced = recorded_of(elements, calls)

    def fingerprints(number: int) -> None:
        for k, array in enumerate(weights):
            tracer.array(f"weights {k}", 0, array)

    def events(number: int) -> None:
        for _ in range(calls):
            tracer.event(name, clock())

    others: dict[Work, Callable[[int], object]] = {
        update_of(elements): lambda number: optimiser.step(gradients, 1.0, 0.0, number),
        fingerprint: fingerprints,
        finite: lambda number: [bool(torch.isfinite(torch.from_numpy(x)).all()) for x in weights],
        traced: events,
    }
    rehearsal.run()
    for call in others.values():
        call(1)
    runs = []
    for number in range(1, TURNS + 1):
        runs.append(rehearsal.run())
        for work, call in others.items():
            before, begin = undisturbed(), now()
            call(number)
            taken = now() - begin
            _write(tracer, {work: taken}, before and undisturbed())
    most = max(ran.share for ran in runs)
    for ran in runs:
        if ran.share < most - ALIKE:  # it was interrupted
            continue
        by: dict[bool, dict[Work, list[float]]] = {True: defaultdict(list), False: defaultdict(list)}
        for work, each, good in zip(works, ran.seconds.tolist(), ran.good.tolist(), strict=True):
            by[good][work].append(each)
        by[ran.rested][rest_of(counts_of(rehearsal.events))].append(ran.rest)
        for good, seconds in by.items():
            means = {work: sum(each) / len(each) for work, each in seconds.items()}
            _write(tracer, means if good else {w: s for w, s in means.items() if w not in by[True]}, good)


def _write(tracer: Tracer, seconds: Mapping[Work, float], good: bool) -> None:
    """Record works that took so long; `good`: nothing disturbed them."""
    for work, each in seconds.items():
        end = tracer.clock()
        start = end - max(round(1e9 * each), 1)
        name = str(work) if good else f"{DISTURBED}{work}"
        tracer.interval(tracer.name(name), start, end, work.nbytes, work.flops)


def _nothing() -> None:
    """The call of a case that is only recorded."""
