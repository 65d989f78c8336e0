"""One repeat of training over a mesh."""

from __future__ import annotations

from miniapps.learning.course.run import run as run_course
from miniapps.learning.course.saved import saved
from miniapps.learning.policies.by_name import COURSES
from miniapps.mesh.checkpoint import HOLDING
from miniapps.mesh.judged import JudgedMeshTrainer
from miniapps.mesh.saved import program
from miniapps.mesh.trainer import MeshTrainer
from miniapps.runner.outcome import Outcome


def run(ctx) -> Outcome:
    """Train from the initial weights or a checkpoint to the last step, or with --save-plan save the plan instead.
    Raises RunError if a gradient is not finite."""
    if path := ctx.config.mesh.save_plan:
        return saved(ctx, path, lambda: program(ctx.config, ctx.options, ctx.size))
    policy = ctx.config.training.policy
    trainer = MeshTrainer(ctx) if policy == "fixed" else JudgedMeshTrainer(ctx)
    outcome = run_course(trainer, HOLDING, COURSES[policy])
    if trainer.pipeline is not None and (few := trainer.pipeline.few()):
        outcome.sentences.append(few)
    return outcome
