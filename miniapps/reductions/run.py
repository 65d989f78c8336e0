"""One repeat of the reductions mini-app: sizes, arrays, samples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from mpi4py import MPI

from miniapps.reductions import data, local
from miniapps.reductions.checks import roundoff, verify
from miniapps.reductions.choice import label
from miniapps.reductions.record import Record
from miniapps.reductions.study import BATCH, Batch, Study
from miniapps.reductions.summary import figures, summary
from miniapps.runner.outcome import Outcome

TRUTH = "truth:exact:native"


def run(ctx) -> Outcome:
    """Sum every array of every size by every variant, `method.samples` times; collective."""
    study = Study(ctx)
    problem = ctx.config.problem
    sizes, arrays = data.extent(problem)
    record = Record(study.reference, roundoff(study.dtype, ctx.size, problem.operation))
    at_once = ctx.size if study.whole_arrays else 1
    rounds = -(-arrays // at_once)
    exact = {label(v) for v in study.variants if v.guarantee == "exact" and study.accumulation == "exact"}
    with local.torch_threads(study.variants, ctx.options.policy.per_block, ctx.options.threads):
        for i, n in enumerate(sizes):
            for k in range(rounds):
                array = k * at_once + (ctx.rank if study.whole_arrays else 0)
                batches = _begin(
                    study, n, array if array < arrays else None, 1 + i * rounds + k, len(sizes) * rounds
                )
                for _ in range(-(-ctx.config.method.samples // BATCH)):
                    for batch in _gathered(study, next(batches)):
                        _write(ctx.tracer, batch)
                        record.add(batch, exact)
    broken = {name: where for rank in ctx.comm.allgather(study.broken) for name, where in rank.items()}
    if ctx.rank:
        return Outcome()
    if ctx.repeat == 0:
        ctx.log.info("%s", summary(record, study.variants, max(sizes)))
    fixed = [label(v) for v in study.variants if v.guarantee != "none"]
    return Outcome(
        figures(record, study.variants, max(sizes)), verify(record, broken), record.fingerprint(fixed)
    )


def _begin(study: Study, n: int, array: int | None, step: int, steps: int) -> Iterator[Batch | None]:
    """Make the numbers of an array, begin its step and yield its batches; yields None on a rank without an array."""
    ctx, tracer, parts = study.ctx, study.ctx.tracer, study.parts(n)
    start = tracer.clock()
    vectors = [] if array is None else data.vectors(study.problem, ctx.seed, array, parts)
    owned = {} if array is None else dict(zip(parts.own.tolist(), parts.cuts, strict=True))

    def peek(block: int) -> np.ndarray | None:
        return vectors[0][slice(*owned[block])] if block in owned else None

    ctx.begin_step(step, steps, peek)
    tracer.event(tracer.name("data"), start)
    if array is None:
        while True:
            yield None
    tracer.at(ctx.repeat, array)
    for block, (first, last) in owned.items():
        for vector in vectors:
            tracer.fingerprints(f"data:{n}", [block], vector[np.newaxis, first:last])
    yield from study.batches(parts, array, vectors)


def _gathered(study: Study, batch: Batch | None) -> list[Batch]:
    """The batches to record, on rank 0; none elsewhere. The time of a sum over several ranks is that of the slowest
    rank. Collective."""
    comm = study.ctx.comm
    if study.whole_arrays or batch is None:
        return [other for other in comm.gather(batch) or [] if other is not None]
    names = list(batch.seconds)
    mine = np.array([batch.seconds[name] for name in names])
    slowest = np.empty_like(mine)
    comm.Reduce(mine, slowest, MPI.MAX)
    batch.seconds = dict(zip(names, slowest, strict=True))
    return [batch] if comm.rank == 0 else []


def _write(tracer, batch: Batch) -> None:
    if batch.first == 0:
        tracer.series(f"{TRUTH}:{batch.n}", 0, [batch.truth], batch.array)
    for name, extremes in batch.worst.items():
        for side, value in zip(("low", "high"), extremes, strict=True):
            tracer.series(f"worst-{side}:{name}:{batch.n}", 0, [value], batch.array)
    for name, values in batch.values.items():
        tracer.series(f"{name}:{batch.n}", batch.first, values, batch.array)
