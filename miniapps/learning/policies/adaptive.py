"""Training by a policy that tries wires (`kernels.learning.trials`): several from one state, then on with the best.

The trace records choices: after each step the next action (`task`: on, look at held-out samples, end); at the end of a
task the state (`begin`) and the `wire` of the next task, with the value expected at its end, and the name of its final
state (`end`). So a replay needs neither a clock nor the policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan
from typing import Any

from kernels.learning.trials import START, Task
from miniapps.errors import UsageError
from miniapps.learning.course.options import ADAPREC
from miniapps.learning.optimisers import rate_at
from miniapps.learning.policies.choosing import trials
from miniapps.learning.policies.courses import Judged
from miniapps.learning.policies.judged import JudgedTrainer

POINTS = 3  # measurements of held-out samples per task
TRIAL = "trial "  # prefix of the states after trials
BEGINNING, NOTHING = "beginning", "nothing"  # choices: the initial state, no wire


@dataclass
class State:
    """A state from which training can continue."""

    wires: tuple[str, ...]
    copied: Any  # of weights, and of what the optimiser keeps
    lost: Any
    position: int
    rates: float  # the sum of learning rates so far


class Adaptive(Judged):
    """The course of `adaprec` and `cautious`, decided by the clock of rank 0."""

    def __init__(self, trainer: JudgedTrainer, position: int):
        super().__init__(trainer, position)
        self._rates, self._begin, self._end, self._spoiled = 0.0, START, "", False
        self._states = {START: self._state()}
        self._seen: list[tuple[float, float]] = []  # (abscissa, value) of the current task
        self._measuring = 0.0  # seconds in which these were measured
        self._speculated: int | None = None  # begin of the current step of a trial
        # Unused in a replay.
        self._policy = trials(self.config)
        self._task_begun, self._steps = 0.0, 0
        self._task: Task | None = None
        self._final = START

    def next_step(self) -> bool:
        """Go to the next step, maybe from another state; returns False at the end."""
        what = self.ctx.choose("task", self._verdict)
        if what != "on":
            self._look()
        if self._speculated is not None:
            self.trainer.tracer.event(self.trainer.name["speculate"], self._speculated)
            self._speculated = None
        if what == "end" and not self._begin_task():
            return False
        if self._end.startswith(TRIAL):
            self._speculated = self.trainer.tracer.clock()
        training = self.config.training
        self.position += 1
        self._rates += rate_at(self.position, training.steps, training.rate, training.optimiser)
        return True

    def recovers(self) -> bool:
        """End the task with a value that is not finite, so that the policy goes back to an earlier state."""
        self._spoiled = True
        return True

    def _look(self) -> None:
        """Measure the held-out samples: Top-N accuracy by steps for adaprec, loss by the sum of rates for cautious."""
        trainer, position, begun = self.trainer, float(self.position), self.elapsed()
        if self.config.training.policy == ADAPREC:
            name, at = "held_out_accuracy", position
            value = nan if self._spoiled else trainer.held_out_accuracy()
        else:
            name, at = "held_out_loss", self._rates
            value = inf if self._spoiled else trainer.held_out_loss()
        self._seen.append((at, value))
        self._measuring += self.elapsed() - begun
        if self.ctx.rank == 0:
            trainer.tracer.value(name, value)

    def _begin_task(self) -> bool:
        """End the current task, if any, and begin the next; returns False if there is none."""
        if self._end:
            self._states[self._end] = self._state()
        begin = self.ctx.choose("begin", self._decided)
        self._begin = START if begin == BEGINNING else begin
        self._load(self._begin)
        wire = self.ctx.choose("wire", self._chosen)
        if wire == NOTHING:
            return False
        self._end = self.ctx.choose("end", lambda: (self._task.end if self._task else NOTHING, nan))
        self._seen, self._measuring = [], 0.0
        self._go_on_over(wire)
        return True

    # ---- states

    def _state(self) -> State:
        trainer = self.trainer
        return State(trainer.wires, trainer.copied(), trainer.lost(), self.position, self._rates)

    def _load(self, name: str) -> None:
        if (state := self._states.get(name)) is None:
            raise UsageError(
                f"--replay {self.ctx.options.replay}: it continues from a state {name!r} that it never kept; record "
                "the run again"
            )
        self.trainer.go_back(state.copied)
        self.position, self._rates, self._spoiled = state.position, state.rates, False

    def _go_on_over(self, wire: str) -> None:
        """Switch to a wire; feedback begins with errors 0 unless the state was reached over the same wire."""
        state = self._states[self._begin]
        self.trainer.assign([wire] * len(self.trainer.tensors))
        self.trainer.restore_lost(state.lost if state.wires == self.trainer.wires else None)

    # ---- decisions, unless replayed; collective

    def _verdict(self) -> tuple[str, float]:
        """Returns the next action after a step, and the seconds so far."""
        now, what, training = self.elapsed(), "on", self.config.training
        if self._task is None:
            what = "end"
        elif self.ctx.rank == 0:
            self._steps += 1
            task, spent = self._task, now - self._task_begun
            done = self._steps / task.steps if task.steps else spent / task.seconds
            if done >= 1 or spent >= task.seconds or self.position >= training.last or self._spoiled:
                what = "end"
            elif done * POINTS >= len(self._seen) + 1:
                what = "look"
        return self.ctx.comm.bcast((what, now))

    def _chosen(self) -> tuple[str, float]:
        """The wire of the current task, and on rank 0 the value that the policy expects at its end; NaN for a trial."""
        task = self._task
        if task is None:
            return NOTHING, nan
        decided = self._policy.decisions[-1:] if not task.trial else []
        return task.wire, decided[0].expected.get(task.wire, nan) if decided else nan

    def _decided(self) -> tuple[str, float]:
        """Pass the results of the current task to the policy; returns the state where the run continues or ends."""
        if self.ctx.rank == 0:
            if self._task is not None:
                seconds = max(self.elapsed() - self._task_begun, self._measuring + 1e-9)
                at, values = zip(*self._seen, strict=True)
                self._policy.done(seconds, at, values, self._measuring)
            elif not self._end:
                self._policy.started(max(self._measuring, 1e-9), *self._seen[0])
            begun, before = self.trainer.tracer.clock(), self.elapsed()
            self._task, self._final = self._policy.task(), self._policy.state
            self._policy.paused(self.elapsed() - before)
            self.trainer.tracer.event(self.trainer.name["decide"], begun)
            if (
                self._task is not None
                and self._states[self._task.begin].position >= self.config.training.last
            ):
                self._final, self._task = self._task.begin, None
            self._task_begun, self._steps = self.elapsed(), 0
        self._task, self._final = self.ctx.comm.bcast((self._task, self._final))
        return (self._final if self._task is None else self._task.begin) or BEGINNING, nan
