"""AdaPrec (Oyama 2018): tries every wire briefly from one state, predicts, and goes on with the best gain per time.

A state machine that a training loop drives. It knows wires by name, seconds, losses and sums of learning rates, but not
the network.

    policy = AdaPrec(("float32", "fp8", "sign"), seconds=60.0)
    while (task := policy.task()) is not None:
        load(task.begin)                        # a kept state; "" is the state at the start of the run
        seconds, losses, rates = train(task.wire, task.seconds, task.steps)
        keep(task.end)
        policy.done(seconds, losses, rates)

The time is divided into segments. In each segment, every wire is tried from the state at the segment's start, and
training goes on with the chosen wire from the end of its trial.

| form | a trial is | score of a wire |
|---|---|---|
| `poster` | a share of the *steps* of a segment | (loss at its start - mean predicted for its end) / seconds |
| `improved` | a share of the *seconds* of a segment | the same with mean + sigma |

A loss that is NaN or infinite is a step back: a wire with such a trial is not chosen, and a run with such a loss
returns to the start of the segment. For `improved`, a loss above 1.1 times the loss at the start of the segment plus
0.02 is a step back too, and the wire is banned for 1, 2, 4, ... segments; the losses should be from held-out data.
Decisions depend on a clock, so a run has no guarantee unless its `choices` are recorded and replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from kernels.guarantees import known
from kernels.learning.curves import predict

FORMS = ("poster", "improved")
SEGMENTS = 12
SHARE = 0.05  # of a segment, for each trial
TIMES, MORE = 1.1, 0.02  # a loss above TIMES * (loss at the start) + MORE is a step back
START = ""  # the state at the start of a run


@dataclass(frozen=True)
class Task:
    """The next training: `wire`, for about `seconds` and, if `steps` is not 0, at most so many steps.

    It starts from the state kept as `begin`; the caller keeps the state at the end as `end`. `trial`: whether it is a
    trial."""

    wire: str
    seconds: float
    steps: int
    begin: str
    end: str
    trial: bool


@dataclass(frozen=True)
class Decision:
    """The chosen wire of a segment, and the score (loss per second) of every tried wire; NaN after a step back."""

    segment: int
    wire: str
    scores: dict[str, float]


@dataclass
class AdaPrec:
    """The policy over `wires` (at least one; the first wins ties) for `seconds` of training.

    `steps`: steps of a segment, only for the form `poster`. Raises ValueError for impossible values, ChoiceError for an
    unknown form."""

    wires: Sequence[str]
    seconds: float
    form: str = "improved"
    steps: int = 0
    segments: int = SEGMENTS
    share: float = SHARE
    spent: float = field(default=0.0, init=False)  # seconds, with trials
    tried: float = field(default=0.0, init=False)  # seconds, of trials alone
    state: str = field(default=START, init=False)  # the current state of the run
    decisions: list[Decision] = field(default_factory=list, init=False)
    banned: dict[str, int] = field(
        default_factory=dict, init=False
    )  # {wire: the first segment in which it is allowed again}

    def __post_init__(self) -> None:
        known("form", self.form, FORMS)
        self.wires = tuple(self.wires)
        if not self.wires or len(set(self.wires)) < len(self.wires):
            raise ValueError(f"wires {', '.join(self.wires) or '(none)'}: give at least one, each once")
        if not 0 < self.seconds < np.inf or self.segments < 1 or not 0 < self.share * len(self.wires) < 1:
            raise ValueError(
                f"{self.seconds} s in {self.segments} segments with {len(self.wires)} trials of {self.share:g} of one: "
                "all must be above 0, and trials take less than a segment"
            )
        if self.form == "poster" and self.share * self.steps < 1:
            raise ValueError(
                f"a trial of {self.share:g} of {self.steps} steps has none: give more steps in a segment"
            )
        self._segment = -1
        self._loss, self._rates = np.nan, 0.0  # at the state, where they are known
        self._bans: dict[str, int] = {}
        self._trials: dict[str, Trial] = {}
        self._free: list[str] = []  # wires that are not banned in this segment
        self._left: list[str] = []  # free wires without a trial so far
        self._begin = START  # the state at the start of this segment; next its loss and sum of rates
        self._at_begin = (np.nan, 0.0)
        self._now: Task | None = None

    def task(self) -> Task | None:
        """The next training; None when the time is over. Returns the same task until `done` is called."""
        if self._now is None and self.seconds - self.spent > 1e-9 * self.seconds:
            self._now = self._next()
        return self._now

    def done(self, seconds: float, losses: ArrayLike, rates: ArrayLike) -> None:
        """Reports the results of the current task: its seconds, its measured losses (n,), the last one at its end, and
        the sums of learning rates (n,) since the start of the run at the same steps. Raises ValueError for no losses,
        another number of rates, and seconds that are not above 0."""
        if self._now is None:
            raise ValueError("no task was given: call task() first")
        trial = Trial(float(seconds), np.asarray(losses, np.float64), np.asarray(rates, np.float64))
        trial.check()
        task, self._now = self._now, None
        self.spent += trial.seconds
        if task.trial:
            self.tried += trial.seconds
            self._trials[task.wire] = trial
            if self._stepped_back(trial):
                self._ban(task.wire)
            return
        if self._stepped_back(trial):
            self._ban(task.wire)
            self.state, (self._loss, self._rates) = self._begin, self._at_begin
        else:
            self.state, self._loss, self._rates = task.end, float(trial.losses[-1]), float(trial.rates[-1])
        self._begin_segment()

    def _next(self) -> Task:
        if self._segment < 0:
            self._begin_segment()
        if self._left:
            wire = self._left.pop(0)
            return self._task(
                wire, self.share * self._length, self._trial_steps, self._begin, f"trial {wire}", True
            )
        return self._rest()

    def _begin_segment(self) -> None:
        """Starts a segment: plans trials of all wires that are not banned. There are no trials for a single wire, or if
        less than half a segment is left."""
        self._segment += 1
        self._begin, self._at_begin, self._trials = self.state, (self._loss, self._rates), {}
        free = [wire for wire in self.wires if self.banned.get(wire, 0) <= self._segment]
        if not free:
            free = [min(self.wires, key=lambda wire: self.banned[wire])]
        long = self.seconds - self.spent > self._length / 2
        self._left = list(free) if long and len(free) > 1 else []
        self._free = free

    def _rest(self) -> Task:
        """The task for the rest of the segment, with the wire of the best score, from the end of its trial."""
        good = {wire: trial for wire, trial in self._trials.items() if not self._stepped_back(trial)}
        scores = {wire: self.score(trial) if wire in good else np.nan for wire, trial in self._trials.items()}
        if good:
            wire = max(good, key=lambda wire: scores[wire])  # the first of several
            begin = f"trial {wire}"
        else:
            last = self.decisions[-1].wire if self.decisions else self.wires[0]
            wire, begin = last if last in self._free else self._free[0], self._begin
        self.decisions.append(Decision(self._segment, wire, scores))
        left = max(self._left_of_segment, self.share * self._length)
        steps = self.steps - self._trial_steps * (wire in good)
        other = (
            "segment b" if self._begin == "segment a" else "segment a"
        )  # the state at the start of the segment may be needed again
        return self._task(wire, left, steps, begin, other, False)

    def _task(self, wire: str, seconds: float, steps: int, begin: str, end: str, trial: bool) -> Task:
        left = self.seconds - self.spent
        if self.form == "poster":
            return Task(wire, left, steps, begin, end, trial)
        return Task(wire, min(seconds, left), 0, begin, end, trial)

    @property
    def _length(self) -> float:
        """Seconds of a segment."""
        return self.seconds / self.segments

    @property
    def _left_of_segment(self) -> float:
        """Seconds of the segment that the trials so far leave."""
        left = self._length - sum(trial.seconds for trial in self._trials.values())
        return min(left, self.seconds - self.spent)

    @property
    def _trial_steps(self) -> int:
        return round(self.share * self.steps)

    def score(self, trial: Trial) -> float:
        """The predicted decrease of the loss per second if training goes on as in `trial` to the segment's end."""
        loss, rates = self._at_begin
        x, y = np.append(rates, trial.rates), np.append(loss, trial.losses)
        if np.isnan(loss):  # nothing is known before the first trial
            x, y, loss = trial.rates, trial.losses, float(trial.losses[0])
        if self.form == "poster":
            times = self.steps / self._trial_steps
        else:
            times = 1 + max(self._left_of_segment, 0.0) / trial.seconds
        there = predict(x, y, x[-1] + (times - 1) * (x[-1] - x[0]))
        if there.failed:
            return (loss - float(trial.losses[-1])) / trial.seconds
        doubt = there.sigma if self.form == "improved" else 0.0
        return (loss - there.mean - doubt) / (times * trial.seconds)

    def _stepped_back(self, trial: Trial) -> bool:
        if self.form == "poster":
            return not np.isfinite(trial.losses).all()
        loss, _ = self._at_begin
        before = float(trial.losses[0]) if np.isnan(loss) else loss
        return not (np.isfinite(trial.losses).all() and trial.losses[-1] <= TIMES * before + MORE)

    def _ban(self, wire: str) -> None:
        if self.form == "improved":
            self._bans[wire] = 2 * self._bans.get(wire, 0) or 1
            self.banned[wire] = self._segment + 1 + self._bans[wire]


@dataclass(frozen=True)
class Trial:
    """Measurements of one training with a wire: seconds; losses and sums of learning rates (n,) float64."""

    seconds: float
    losses: np.ndarray
    rates: np.ndarray

    def check(self) -> None:
        """Raises ValueError for values that no training can report."""
        if self.losses.ndim != 1 or self.losses.shape != self.rates.shape or not len(self.losses):
            raise ValueError(
                f"{self.losses.shape} losses at {self.rates.shape} sums of rates: give as many, at least one"
            )
        if not 0 < self.seconds < np.inf:
            raise ValueError(f"a task took {self.seconds} s: give the seconds of a clock that runs")
        if not np.isfinite(self.rates).all() or (np.diff(self.rates) < 0).any():
            raise ValueError("sums of learning rates must be finite, and ascend")
