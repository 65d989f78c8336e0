"""Which step comes next. A course is asked before each, while the step before is the one that the trace is at."""

from __future__ import annotations

import time

from miniapps.learning.course.trainer import Trainer


class Course:
    """From step `position` of the problem to the last.

    `position`: the step of the problem that the run has come to.
    """

    def __init__(self, trainer: Trainer, position: int):
        self.ctx, self.config = trainer.ctx, trainer.config
        self.position, self._first = position, position
        self._excluded = time.perf_counter()

    def next_step(self) -> bool:
        """Go to the next step; False when there is none. Collective."""
        if self.position >= self.config.training.last:
            return False
        self.position += 1
        return True

    def recovers(self) -> bool:
        """Whether the run can go on from somewhere after a gradient that is no number."""
        return False

    def exclude(self, seconds: float) -> None:
        """Leave out of the time what an evaluation took."""
        self._excluded += seconds

    def elapsed(self) -> float:
        """Seconds so far, on this rank."""
        return time.perf_counter() - self._excluded


class Timed(Course):
    """The same, or until the time is over, which is a choice of the run."""

    def next_step(self) -> bool:
        """Go to the next step; False when there is none. Collective."""
        if self.position >= self.config.training.last:
            return False
        if self.config.training.seconds and self.ctx.choose("time", self._measured) == "over":
            return False
        self.decide()
        return super().next_step()

    def decide(self) -> None:
        """What there is to decide before the next step."""

    def _measured(self) -> tuple[str, float]:
        seconds = self.ctx.comm.bcast(self.elapsed())
        return ("over" if seconds >= self.config.training.seconds else "on"), seconds
