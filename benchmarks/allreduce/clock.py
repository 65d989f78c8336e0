"""A clock that all ranks share: the offset of every rank's clock from rank 0's, and its linear drift.

A rank measures its offset by an exchange of messages: it records its time, asks rank 0 for its time, and records its
own time again. Rank 0 read its clock between the two, so the middle is wrong by at most half of the round trip
(Cristian 1989); the quickest of several exchanges counts. A straight line through such samples gives offset and drift
at any time (Jones and Koenig 2012; Hunold and Carpen-Amarie 2015, ReproMPI). The clocks of one node count the ticks of
one oscillator and cannot drift apart: there only the offset is estimated, and every sample narrows it. Every sample has
an error bound, so the line has one too. A clock with a variable rate shows when a new sample is farther from the line
than both bounds allow. Rank 0 answers one rank after the other: the time of an estimate is proportional to their
number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

EXCHANGES = 12  # round trips of a sample
SAMPLES = 5  # at the start; between nodes PAUSE seconds apart, since a drift needs time to show
PAUSE = 0.25
KEPT = 64  # latest samples for the fit of the line
DUE = 1.0  # seconds until the clocks are read again
COARSE = 50e-6  # seconds; a clock with a larger error bound cannot show which rank was late
_TAG = 1


@dataclass(frozen=True, slots=True)
class Sample:
    """The `offset` of this rank's clock from rank 0's at its own time `at`, with error `bound`; in seconds."""

    at: float
    offset: float
    bound: float


@dataclass(frozen=True, slots=True)
class Line:
    """offset(t) = level + drift (t - middle), with bounds on the errors of level and drift."""

    middle: float
    level: float
    drift: float
    level_error: float
    drift_error: float

    def offset(self, at: float) -> float:
        """The seconds by which this rank's clock is ahead of rank 0's at its own time `at`."""
        return self.level + self.drift * (at - self.middle)

    def error(self, at: float) -> float:
        """The error bound of `offset(at)`, if both clocks have constant rates."""
        return self.level_error + self.drift_error * abs(at - self.middle)

    def globally(self, at: float) -> float:
        """Rank 0's time at this rank's time `at`."""
        return at - self.offset(at)

    def local(self, at: float) -> float:
        """This rank's time at rank 0's time `at`."""
        return self.middle + (at - self.middle + self.level) / (1 - self.drift)


STRAIGHT = Line(0.0, 0.0, 0.0, 0.0, 0.0)  # for rank 0, whose clock is the reference


def fit(samples: Sequence[Sample]) -> Line:
    """The line through samples, those with smaller bounds weighing more.

    Level and drift are weighted sums of the offsets, so the same sums of the bounds, with weights made positive,
    bound their errors. One sample, or several at one time, give no drift.
    """
    at, offset, bound = np.array([(s.at, s.offset, max(s.bound, 1e-9)) for s in samples]).T
    weights = bound**-2
    weights /= weights.sum()
    middle = float(weights @ at)
    along = at - middle
    spread = weights @ along**2
    slopes = weights * along / spread if spread > 0 else np.zeros_like(weights)
    return Line(
        middle,
        float(weights @ offset),
        float(slopes @ offset),
        float(weights @ bound),
        float(abs(slopes) @ bound),
    )


def level(samples: Sequence[Sample]) -> Line:
    """The line without drift: the middle of the offsets that all samples allow."""
    least = max(s.offset - s.bound for s in samples)
    most = min(s.offset + s.bound for s in samples)
    return Line(samples[-1].at, (least + most) / 2, 0.0, max(0.0, (most - least) / 2), 0.0)


def quickest(exchanges: Sequence[tuple[float, float, float]]) -> Sample:
    """The sample of the quickest of the exchanges (sent, rank 0's time, answered)."""
    sent, there, answered = min(exchanges, key=lambda e: e[2] - e[0])
    middle = (sent + answered) / 2
    return Sample(middle, middle - there, (answered - sent) / 2)


def unexplained(line: Line, sample: Sample) -> float:
    """Seconds by which a sample is farther from the line than the bounds of both allow; 0 where it fits."""
    distance = abs(sample.offset - line.offset(sample.at))
    return max(0.0, distance - sample.bound - line.error(sample.at))


class GlobalClock:
    """Rank 0's clock on every rank of `comm`, `nodes[rank]` being its node. Construction and `refresh` are collective.

    `failure` says why the clock cannot be trusted, the same on all ranks; empty if it can.
    """

    def __init__(self, comm, nodes: Sequence[int], now: Callable[[], float] = time.perf_counter):
        self.comm, self.now = comm, now
        self.line, self.failure = STRAIGHT, ""
        self._fit = level if nodes[comm.rank] == nodes[0] else fit
        self._samples: list[Sample] = []
        for i in range(SAMPLES):
            if i and len(set(nodes)) > 1:
                time.sleep(PAUSE)
            self._sample()
        self._agree("")

    def due(self) -> bool:
        """Whether the clocks should be read again; rank 0 decides for all."""
        return self.now() - self._read > DUE

    def refresh(self) -> None:
        """Reads the clocks again, checks the new offsets against the lines, and fits the lines again."""
        before = self.line
        self._sample()
        complaint = ""
        if self.comm.rank:
            sample = self._samples[-1]
            if gap := unexplained(before, sample):
                complaint = (
                    f"the clock of rank {self.comm.rank} has no constant rate: its offset from rank 0's is "
                    f"{sample.offset * 1e6:.1f} us, {gap * 1e6:.1f} us farther from the line than the bounds allow"
                )
        self._agree(complaint)

    def errors(self) -> list[float]:
        """Bound on the error of every rank's clock now, seconds; collective."""
        return self.comm.allgather(self.line.error(self.now()) if self.comm.rank else 0.0)

    def drifts(self) -> list[float]:
        """Drift of every rank's clock against rank 0's, seconds per second; collective."""
        return self.comm.allgather(self.line.drift)

    def _sample(self) -> None:
        for rank in range(1, self.comm.size):
            if self.comm.rank == rank:
                self._samples = [*self._samples[-KEPT + 1 :], quickest(self._ask())]
                self.line = self._fit(self._samples)
            elif self.comm.rank == 0:
                self._answer(rank)
        self._read = self.now()

    def _agree(self, complaint: str) -> None:
        error = self.line.error(self.now()) if self.comm.rank else 0.0
        if not complaint and error > COARSE:
            complaint = (
                f"the clock of rank {self.comm.rank} has an error bound of {error * 1e6:.0f} us, "
                f"more than {COARSE * 1e6:.0f}"
            )
        self.failure = self.failure or next(filter(None, self.comm.allgather(complaint)), "")

    def _ask(self) -> list[tuple[float, float, float]]:
        question, answer, exchanges = np.zeros(1), np.zeros(1), []
        for _ in range(EXCHANGES):
            sent = self.now()
            self.comm.Send(question, 0, _TAG)
            self.comm.Recv(answer, 0, _TAG)
            exchanges.append((sent, float(answer[0]), self.now()))
        return exchanges

    def _answer(self, rank: int) -> None:
        question, answer = np.zeros(1), np.zeros(1)
        for _ in range(EXCHANGES):
            self.comm.Recv(question, rank, _TAG)
            answer[0] = self.now()
            self.comm.Send(answer, rank, _TAG)
