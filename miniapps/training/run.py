"""One repeat of the training mini-app, from the initial weights or a checkpoint to the last step."""

import time
from math import inf, isfinite

from miniapps.checkpoints.rounding import rounded
from miniapps.runner.outcome import Check, Outcome
from miniapps.runner.shares import Shares
from miniapps.training.adaptive import Adaptive
from miniapps.training.checkpoint import load_checkpoint, save_checkpoint
from miniapps.training.courses import COURSES
from miniapps.training.nonfinite import NotFinite


def run(ctx) -> Outcome:
    """Run to `training.last`, or until the time is over; collective. Raises RunError when a gradient is not finite."""
    config = ctx.config
    trainer = made(ctx)
    first = load_checkpoint(ctx, trainer) if config.output.restart else 0
    last, every = config.training.last, config.evaluation.every
    reached, evaluated, step = inf, 0.0, first
    shares = Shares(ctx, trainer.owner) if config.output.shares == "auto" else None
    begin = time.perf_counter()
    going = (Adaptive if config.training.tries else COURSES[config.training.policy])(trainer, first)
    while going.another():
        step += 1
        ctx.begin_step(step, last, trainer.peek)
        try:
            trainer.advance(going.position)
        except NotFinite:
            if not going.survives():
                raise
        if shares:
            shares.observe()
        if every and step % every == 0 and going.position < config.training.steps:
            start = time.perf_counter()
            trainer.evaluate(going.position)
            took = time.perf_counter() - start
            evaluated += took
            going.exclude(took)
            reached = min(reached, _reached(trainer, begin))
        if config.output.checkpoint_every and step % config.output.checkpoint_every == 0:
            start = ctx.tracer.clock()
            if bits := config.output.checkpoint_bits:
                trainer.take([[rounded(x, bits) for x in kept] for kept in trainer.state()])
            save_checkpoint(ctx, step, trainer)  # after all that the step records: its head is over it
            ctx.tracer.event(trainer.name["checkpoint"], start)
            counts = shares.decide() if shares and going.position < last else None
            if counts:
                trainer.deal(counts)
    wall = time.perf_counter() - begin - evaluated
    ctx.end_steps(step + 1)
    trainer.trace_weights()
    trainer.evaluate(going.position)
    reached = min(reached, _reached(trainer, begin))
    trainer.record_outputs(going.position)
    steps = step - first
    figures = trainer.figures() | {"steps": (steps / wall if steps else 0.0, "steps/s")}
    if config.evaluation.target:
        figures["time_to_accuracy"] = (reached, "s")
    checks = [Check("finite", not steps or isfinite(trainer.loss), f"loss {trainer.loss:g}")]
    if getattr(trainer, "duplicates", None) is not None:
        checks.append(trainer.duplicates.verdict())
    print_of_all = trainer.fingerprint()
    trainer.free()
    return Outcome(figures, checks, print_of_all)


def made(ctx):
    """The trainer of a run: over a mesh, with tables over all ranks, or of micro-batches, data-parallel. Collective."""
    if ctx.config.meshed:
        from miniapps.training.mesh_trainer import MeshTrainer

        return MeshTrainer(ctx)
    if ctx.config.model.name == "dlrm":
        from miniapps.training.dlrm_trainer import DlrmTrainer

        return DlrmTrainer(ctx)
    from miniapps.training.trainer import Trainer

    return Trainer(ctx)


def _reached(trainer, begin: float) -> float:
    """Seconds since `begin`, if the accuracy is what was asked for; else infinity."""
    target = trainer.config.evaluation.target
    return time.perf_counter() - begin if 0.0 < target <= trainer.accuracy else inf
