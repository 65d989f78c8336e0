"""The course of steps. It decides about the next step while the trace is still at the previous one."""

from __future__ import annotations

import time

from miniapps.learning.course.trainer import Trainer


class Course:
    """The steps from `position` to the last.

    `position`: the step of the problem that the run has reached.
    """

    def __init__(self, trainer: Trainer, position: int):
        self.ctx, self.config = trainer.ctx, trainer.config
        self.position, self._first = position, position
        self._excluded = time.perf_counter()

    def next_step(self) -> bool:
        """Go to the next step; returns False if there is none. Collective."""
        if self.position >= self.config.training.last:
            return False
        self.position += 1
        return True

    def recovers(self) -> bool:
        """Whether the run can continue after a gradient that is not finite."""
        return False

    def exclude(self, seconds: float) -> None:
        """Exclude the `seconds` of an evaluation from the time."""
        self._excluded += seconds

    def elapsed(self) -> float:
        """Seconds so far, on this rank."""
        return time.perf_counter() - self._excluded


class Timed(Course):
    """A course that also ends after `training.seconds`, by a recorded choice of the run."""

    def next_step(self) -> bool:
        """Go to the next step; returns False if there is none. Collective."""
        if self.position >= self.config.training.last:
            return False
        if self.config.training.seconds and self.ctx.choose("time", self._measured) == "over":
            return False
        self.decide()
        return super().next_step()

    def decide(self) -> None:
        """Make the decisions before the next step; none here."""

    def _measured(self) -> tuple[str, float]:
        seconds = self.ctx.comm.bcast(self.elapsed())
        return ("over" if seconds >= self.config.training.seconds else "on"), seconds
