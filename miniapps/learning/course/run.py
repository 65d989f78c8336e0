"""One repeat of any learner, from its first weights or a checkpoint to the last step."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf, isfinite
from typing import TypeVar

from miniapps.checkpoints.rounding import rounded
from miniapps.learning.course.checkpoint import Holding
from miniapps.learning.course.steps import Course
from miniapps.learning.course.trainer import NotFinite, Trainer
from miniapps.runner.outcome import Check, Outcome
from miniapps.runner.shares import Shares

Learning = TypeVar("Learning", bound=Trainer)


def run(
    trainer: Learning,
    holding: Holding,
    course: Callable[[Learning, int], Course],
    target: float = 0.0,
    shares: Shares | None = None,
) -> Outcome:
    """Run to `training.last`, or to the end of the course; collective. Raises RunError if a gradient is not finite.

    `course(trainer, position)` makes the course of steps; `holding`: the contents of checkpoints; `target`: an accuracy
    whose time is reported, 0 for none; `shares`: redistributes micro-batches.
    """
    ctx, config = trainer.ctx, trainer.config
    first = holding.load(trainer) if config.output.restart else 0
    last, every = config.training.last, config.evaluation.every
    reached, evaluated, step = inf, 0.0, first
    begin = time.perf_counter()

    def seconds() -> float:
        """Seconds until now if the accuracy has reached the target, else infinity."""
        return time.perf_counter() - begin if 0.0 < target <= trainer.accuracy else inf

    going = course(trainer, first)
    while going.next_step():
        step += 1
        ctx.begin_step(step, last, trainer.peek)
        try:
            trainer.advance(going.position)
        except NotFinite:
            if not going.recovers():
                raise
        if shares:
            shares.observe()
        if every and step % every == 0 and going.position < config.training.steps:
            start = time.perf_counter()
            trainer.evaluate(going.position)
            took = time.perf_counter() - start
            evaluated += took
            going.exclude(took)
            reached = min(reached, seconds())
        if config.output.checkpoint_every and step % config.output.checkpoint_every == 0:
            start = ctx.tracer.clock()
            if bits := config.output.checkpoint_bits:
                trainer.restore([[rounded(x, bits) for x in kept] for kept in trainer.state()])
            holding.save(trainer, step)  # last in the step, so that its head covers all records of the step
            ctx.tracer.event(trainer.name["checkpoint"], start)
            counts = shares.decide() if shares and going.position < last else None
            if counts:
                trainer.redistribute(counts)
    wall = time.perf_counter() - begin - evaluated
    ctx.end_steps(step + 1)
    trainer.trace_weights()
    trainer.evaluate(going.position)
    reached = min(reached, seconds())
    trainer.record_outputs(going.position)
    steps = step - first
    figures = trainer.figures() | {"steps": (steps / wall if steps else 0.0, "steps/s")}
    if target:
        figures["time_to_accuracy"] = (reached, "s")
    checks = [
        Check("finite", not steps or isfinite(trainer.loss), f"loss {trainer.loss:g}"),
        *trainer.checks(),
    ]
    print_of_all = trainer.fingerprint()
    trainer.free()
    return Outcome(figures, checks, print_of_all)
