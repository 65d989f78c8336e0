"""One repeat of the training mini-app."""

from __future__ import annotations

from miniapps.learning.course.run import run as run_course
from miniapps.learning.policies.by_name import COURSES
from miniapps.runner.outcome import Outcome
from miniapps.runner.shares import Shares
from miniapps.training.checkpoint import HOLDING
from miniapps.training.local import LocalTrainer
from miniapps.training.trainer import ModelTrainer


def run(ctx) -> Outcome:
    """Run from the initial weights or a checkpoint to the last step. Raises RunError if a gradient is not finite."""
    config = ctx.config
    trainer = LocalTrainer(ctx) if config.training.local_steps else ModelTrainer(ctx)
    shares = Shares(ctx, trainer.owner) if config.output.shares == "auto" else None
    return run_course(trainer, HOLDING, COURSES[config.training.policy], config.evaluation.target, shares)
