"""One repeat of DLRM."""

from __future__ import annotations

from miniapps.dlrm.checkpoint import HOLDING
from miniapps.dlrm.trainer import DlrmTrainer
from miniapps.learning.course.run import run as run_course
from miniapps.learning.course.steps import Timed
from miniapps.runner.outcome import Outcome


def run(ctx) -> Outcome:
    """Train from the initial weights or a checkpoint to the last step. Raises RunError if a gradient is not finite."""
    return run_course(DlrmTrainer(ctx), HOLDING, Timed, ctx.config.evaluation.target)
