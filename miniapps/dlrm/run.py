"""One repeat of DLRM."""

from __future__ import annotations

from miniapps.dlrm.checkpoint import HOLDING
from miniapps.dlrm.program import planned
from miniapps.dlrm.trainer import DlrmTrainer
from miniapps.learning.course.run import run as run_course
from miniapps.learning.course.saved import saved
from miniapps.learning.course.steps import Timed
from miniapps.runner.outcome import Outcome


def run(ctx) -> Outcome:
    """Train from the initial weights or a checkpoint to the last step, or with --save-plan save the plan instead.
    Raises RunError if a gradient is not finite."""
    if path := ctx.config.plan.save:
        return saved(ctx, path, lambda: planned(ctx.config, ctx.options, ctx.size))
    return run_course(DlrmTrainer(ctx), HOLDING, Timed, ctx.config.evaluation.target)
