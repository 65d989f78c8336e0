"""Tries wires briefly from one state, chooses one, and goes on with it: what `AdaPrec` and `Cautious` have in common.

A state machine that a training loop drives. It knows wires by name, seconds and measurements, but not the network.

    policy = Cautious(("float32", "fp8", "sign"), seconds=60.0)
    policy.started(seconds, at, value)          # a first measurement, before any training; may be left out
    while (task := policy.task()) is not None:
        load(task.begin)                        # a kept state; "" is the state at the start of the run
        seconds, at, values = train(task.wire, task.seconds, task.steps)
        keep(task.end)
        policy.done(seconds, at, values)

The time is divided into segments. In each segment, every wire is tried from the state at the segment's start, and
training goes on with the chosen wire from the end of its trial. A policy says how long a trial is, which score a wire
gets, and when a run steps back to the start of its segment. A value that is NaN or infinite is always a step back: a
wire with such a trial is not chosen. Decisions depend on a clock, so a run has no guarantee unless its `choices` are
recorded and replayed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

SEGMENTS = 12
SHARE = 0.05  # of a segment, for each trial
START = ""  # the state at the start of a run

Curve = tuple[tuple[float, float], ...]  # (abscissa, value) of measurements on the way to a state


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
    """The chosen wire of a segment. For every tried wire its score, per second, and the value expected at the segment's
    end; NaN after a step back, and where nothing could be predicted."""

    segment: int
    wire: str
    scores: dict[str, float]
    expected: dict[str, float]


@dataclass(frozen=True)
class Trial:
    """Measurements of one training with a wire: its seconds, without those of measuring, and the curve of its
    values."""

    seconds: float
    curve: Curve

    @property
    def last(self) -> float:
        """The value at the end."""
        return self.curve[-1][1]

    @property
    def finite(self) -> bool:
        """Whether all values are numbers."""
        return bool(np.isfinite([value for _, value in self.curve]).all())


@dataclass
class Trials(ABC):
    """The machine over `wires` (at least one; the first wins ties) for `seconds` of training. Raises ValueError for
    values that no training can have."""

    wires: Sequence[str]
    seconds: float
    segments: int = SEGMENTS
    share: float = SHARE
    spent: float = field(default=0.0, init=False)  # seconds, with trials
    tried: float = field(default=0.0, init=False)  # seconds, of trials alone
    state: str = field(default=START, init=False)  # the current state of the run
    segment: int = field(default=-1, init=False)
    begun: Curve = field(default=(), init=False)  # all measurements on the way to the start of the segment
    decisions: list[Decision] = field(default_factory=list, init=False)
    # {wire: the first segment in which it is allowed again}
    banned: dict[str, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.wires = tuple(self.wires)
        if not self.wires or len(set(self.wires)) < len(self.wires):
            raise ValueError(f"wires {', '.join(self.wires) or '(none)'}: give at least one, each once")
        if not 0 < self.seconds < np.inf or self.segments < 1 or not 0 < self.share * len(self.wires) < 1:
            raise ValueError(
                f"{self.seconds} s in {self.segments} segments with {len(self.wires)} trials of {self.share:g} of one: "
                "all must be above 0, and trials take less than a segment"
            )
        self._curve: Curve = ()  # of all measurements on the way to the state
        self.measuring = 0.0  # most seconds that the measurements of a task took
        self._trials: dict[str, Trial] = {}
        self._in_trials = 0.0  # seconds of this segment's trials, with their measurements
        self._free: list[str] = []  # wires that are not banned in this segment
        self._left: list[str] = []  # free wires without a trial so far
        self._begin = START  # the state at the start of this segment
        self._now: Task | None = None

    # ---- what a policy says

    @abstractmethod
    def judged(self, trials: Mapping[str, Trial]) -> dict[str, tuple[float, float]]:
        """{wire: (score, value expected at the segment's end)} if training goes on as in each of `trials`. The score is
        a gain per second."""

    @abstractmethod
    def limits(self, seconds: float, share: float) -> tuple[float, int]:
        """Seconds and steps (0: as many as fit) of a task for `share` of a segment; by the clock it has `seconds`."""

    def stepped_back(self, trial: Trial) -> bool:
        """Whether a run that measured `trial` goes back to the start of the segment."""
        return not trial.finite

    def ban(self, wire: str) -> None:
        """What follows for a wire after a step back: nothing here."""
        return

    # ---- for the training loop

    def task(self) -> Task | None:
        """The next training; None when the time is over. Returns the same task until `done` is called."""
        if self._now is None and self.seconds - self.spent > 1e-9 * self.seconds:
            self._now = self._next()
        return self._now

    def started(self, seconds: float, at: float, value: float) -> None:
        """Reports a measurement before the first task, and the seconds that it took. Raises ValueError as `done`, and
        after the first task."""
        if self.segment >= 0:
            raise ValueError("the first task was given already")
        self._curve = self.checked(float(seconds), np.asarray([at]), np.asarray([value]))
        self.measuring = float(seconds)
        self.spent += float(seconds)

    def paused(self, seconds: float) -> None:
        """Counts seconds between tasks, such as those of a decision, as time of the run."""
        self.spent += seconds

    def done(self, seconds: float, at: ArrayLike, values: ArrayLike, measuring: float = 0.0) -> None:
        """Reports the results of the current task: its seconds, its measured values (n,), the last one at its end, and
        their abscissae (n,), counted from the start of the run. `measuring`: seconds of these that measurements took;
        a score is per second without them. Raises ValueError for no values, another number of abscissae, abscissae that
        fall, and seconds of training that are not above 0."""
        if self._now is None:
            raise ValueError("no task was given: call task() first")
        trained = float(seconds) - float(measuring)
        trial = Trial(trained, self.checked(trained, np.asarray(at), np.asarray(values)))
        task, self._now = self._now, None
        self.measuring = max(self.measuring, float(measuring))
        self.spent += float(seconds)
        if task.trial:
            self.tried += float(seconds)
            self._in_trials += float(seconds)
            self._trials[task.wire] = trial
            if self.stepped_back(trial):
                self.ban(task.wire)
            return
        if self.stepped_back(trial):
            self.ban(task.wire)
            self.state, self._curve = self._begin, self.begun
        else:
            before = self._trials[task.wire].curve if task.begin != self._begin else ()
            self.state, self._curve = task.end, (*self.begun, *before, *trial.curve)
        self._begin_segment()

    def checked(self, seconds: float, at: np.ndarray, values: np.ndarray) -> Curve:
        """The curve of a task. Raises ValueError for numbers that no training can report."""
        if values.ndim != 1 or values.shape != at.shape or not len(values):
            raise ValueError(
                f"{values.shape} values at {at.shape} abscissae: give as many, at least one of each"
            )
        if not 0 < seconds < np.inf:
            raise ValueError(f"a task took {seconds} s: give the seconds of a clock that runs")
        if not np.isfinite(at).all() or (np.diff(at) < 0).any():
            raise ValueError("abscissae must be finite, and ascend")
        return tuple(zip(at.tolist(), values.tolist(), strict=True))

    # ---- segments

    def _next(self) -> Task:
        if self.segment < 0:
            self._begin_segment()
        if self._left:
            wire = self._left.pop(0)
            return self._task(wire, self.share * self.length, self.share, self._begin, f"trial {wire}", True)
        return self._rest()

    def _begin_segment(self) -> None:
        """Starts a segment: plans trials of all wires that are not banned. There are no trials for a single wire, or if
        less than half a segment is left."""
        self.segment += 1
        self._begin, self.begun, self._trials, self._in_trials = self.state, self._curve, {}, 0.0
        free = [wire for wire in self.wires if self.banned.get(wire, 0) <= self.segment]
        if not free:
            free = [min(self.wires, key=lambda wire: self.banned[wire])]
        long = self.seconds - self.spent > self.length / 2
        self._left = list(free) if long and len(free) > 1 else []
        self._free = free

    def _rest(self) -> Task:
        """The task for the rest of the segment, with the wire of the best score, from the end of its trial."""
        good = {wire: trial for wire, trial in self._trials.items() if not self.stepped_back(trial)}
        judged = self.judged(good) if good else {}
        if good:
            wire = max(good, key=lambda wire: judged[wire][0])  # the first of several
            begin = f"trial {wire}"
        else:
            last = self.decisions[-1].wire if self.decisions else self.wires[0]
            wire, begin = last if last in self._free else self._free[0], self._begin
        scores, expected = (
            {tried: judged.get(tried, (np.nan, np.nan))[k] for tried in self._trials} for k in (0, 1)
        )
        self.decisions.append(Decision(self.segment, wire, scores, expected))
        left = max(self.left_of_segment, self.share * self.length)
        # The state at the start of the segment may be needed again.
        other = "segment b" if self._begin == "segment a" else "segment a"
        return self._task(wire, left, 1 - self.share * (wire in good), begin, other, False)

    def _task(self, wire: str, seconds: float, share: float, begin: str, end: str, trial: bool) -> Task:
        left = self.seconds - self.spent
        return Task(wire, *self.limits(min(seconds, left), share), begin, end, trial)

    @property
    def length(self) -> float:
        """Seconds of a segment."""
        return self.seconds / self.segments

    @property
    def left_of_segment(self) -> float:
        """Seconds of the segment that the trials so far leave."""
        return min(self.length - self._in_trials, self.seconds - self.spent)
