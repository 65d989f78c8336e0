"""Training as AdaPrec says (kernels.learning.adaprec): with several wires from one state, then on with the best.

What is recorded are choices: after each step whether to go on (`task`: on, next, over), and where not, from which state
(`begin`), over which `wire`, and as what the end is kept (`end`). So a replay needs no clock, and no policy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite, nan

import numpy as np

from kernels.learning.adaprec import START, Task
from kernels.learning.curves import predict
from miniapps.errors import UsageError
from miniapps.training.buckets import Lost
from miniapps.training.choosing import adaprec
from miniapps.training.courses import Course
from miniapps.training.optimiser import rate_at

POINTS = 3  # losses of held-out images in a task
TRIAL = "trial "  # the state after a trial begins so
BEGINNING = "beginning"  # of the run, as a choice


@dataclass
class State:
    """Where training can go on from."""

    wires: tuple[str, ...]
    weights: list[np.ndarray]
    velocities: list[np.ndarray]
    lost: Lost
    position: int
    rates: float  # their sum so far


@dataclass
class Measured:
    """What rank 0 sees of a task."""

    task: Task
    begun: float
    steps: int = 0
    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)


class Adaptive(Course):
    """What AdaPrec says, decided by the clock of rank 0."""

    def __init__(self, trainer, position: int):
        import scipy.optimize  # noqa: F401 (for curves: a second that no segment should pay for)

        super().__init__(trainer, position)
        self._policy = adaprec(self.config)
        self._rates, self._end, self._spoiled = 0.0, "", False
        self._states = {START: self._state()}
        self._now: Measured | None = None  # on rank 0, where nothing is replayed
        self._known: dict[str, tuple[list[float], list[float]]] = {
            START: ([], [])
        }  # (rates, losses) up to a state
        self._task: Task | None = None  # on all ranks
        self._final = START  # the state that the run ends with, on rank 0
        self._speculated: int | None = None  # when a step of a trial began

    def another(self) -> bool:
        """Go to the next step, maybe of another state."""
        if self._speculated is not None:
            self.trainer.tracer.event(self.trainer.name["speculate"], self._speculated)
            self._speculated = None
        what = self.ctx.choose("task", self._verdict)
        if what != "on":
            if self._end:
                self._states[self._end] = self._state()
            begin = self.ctx.choose("begin", lambda: (self._begin() or BEGINNING, nan))
            self._load(START if begin == BEGINNING else begin)
            if what == "over":
                return False
            wire = self.ctx.choose("wire", lambda: (self._agreed().wire, nan))
            self._end = self.ctx.choose("end", lambda: (self._agreed().end, nan))
            self._go_on_over(wire, begin)
        if self._end.startswith(TRIAL):
            self._speculated = self.trainer.tracer.clock()
        training = self.config.training
        self.position += 1
        self._rates += rate_at(self.position, training.steps, training.rate)
        return True

    def survives(self) -> bool:
        """The task is over, and its loss no number, so that the policy steps back."""
        self._spoiled = True
        return True

    # ---- states

    def _state(self) -> State:
        optimiser = self.trainer.optimiser
        weights, velocities = (
            [array.copy() for array in arrays] for arrays in (optimiser.weights, optimiser.velocities)
        )
        return State(
            self.trainer.wires, weights, velocities, self.trainer.exchange.lost(), self.position, self._rates
        )

    def _load(self, name: str) -> None:
        if (state := self._states.get(name)) is None:
            raise UsageError(
                f"--replay {self.ctx.options.replay}: it goes on from a state {name!r} that it never kept"
            )
        optimiser = self.trainer.optimiser
        for arrays, kept in ((optimiser.weights, state.weights), (optimiser.velocities, state.velocities)):
            for array, values in zip(arrays, kept, strict=True):
                array[...] = values
        self.position, self._rates, self._spoiled = state.position, state.rates, False

    def _go_on_over(self, wire: str, begin: str) -> None:
        """Feedback begins with nothing lost, unless the state was reached over the same wire."""
        state = self._states[START if begin == BEGINNING else begin]
        self.trainer.assign([wire] * len(self.trainer.shapes))
        same = state.wires == self.trainer.wires
        self.trainer.exchange.restore_lost(state.lost if same else {})

    # ---- decisions, where nothing is replayed; collective

    def _verdict(self) -> tuple[str, float]:
        """What comes after the step that was made: `on`, `next`, `over`; and the seconds so far."""
        comm, now = self.ctx.comm, self._now
        look = ended = False
        if now is not None:
            spent = self.elapsed() - now.begun
            now.steps += 1
            task, training = now.task, self.config.training
            done = now.steps / task.steps if task.steps else spent / task.seconds
            ended = done >= 1 or spent >= task.seconds or self.position >= training.last or self._spoiled
            look = ended or done * POINTS >= len(now.losses) + 1
        look, ended, begun = comm.bcast((look, ended, now is not None))
        if look:
            loss = inf if self._spoiled else self.trainer.held_out_loss()
            if now is not None:
                now.losses.append(loss)
                now.rates.append(self._rates)
        if begun and not ended:
            return "on", comm.bcast(self.elapsed())
        if now is not None:
            self._settle(now)
        if self.ctx.rank == 0:
            self._task = self._policy.task()
            self._final = self._policy.state
            if self._task is not None and self._position_of(self._task.begin) >= self.config.training.last:
                self._final, self._task = self._task.begin, None
        self._task = comm.bcast(self._task)
        if self._task is not None and self.ctx.rank == 0:
            self._now = Measured(self._task, self.elapsed())
        return ("over" if self._task is None else "next"), comm.bcast(self.elapsed())

    def _settle(self, now: Measured) -> None:
        """Tell the policy what became of a task, and record how far from the truth its curve was."""
        rates, losses = self._known[now.task.begin]
        self._known[now.task.end] = [*rates[-1:], *now.rates], [*losses[-1:], *now.losses]
        if now.task.begin.startswith(TRIAL) and all(map(isfinite, [*losses, now.losses[-1]])):
            there = predict(rates, losses, now.rates[-1])
            if not there.failed:
                self.trainer.tracer.value("curve_error", abs(there.mean - now.losses[-1]))
        self._policy.done(max(self.elapsed() - now.begun, 1e-9), now.losses, now.rates)

    def _position_of(self, name: str) -> int:
        return self.position if name == self._end else self._states[name].position

    def _agreed(self) -> Task:
        assert self._task is not None
        return self._task

    def _begin(self) -> str:
        """The state that comes next."""
        return self.ctx.comm.bcast(self._final) if self._task is None else self._task.begin
