"""Chooses wires by trials of equal time and their held-out losses, and goes back when training gets worse.

`AdaPrec` tries equal steps, so that trials of slow wires take most of the time, and it trusts predictions. `Cautious`
differs: a trial is a share of the *seconds* of a segment, and takes at least LONGER times its measurements, for which
segments become longer; its score takes off what is not known,

    (loss at the start - mean - sigma of the loss predicted for the end) / seconds;

a loss above TIMES times that at the start of the segment plus MORE is a step back; and the wire of a step back is
banned for 1, 2, 4, ... segments. Values are losses of held-out samples, their abscissae sums of learning rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernels.learning.curves import predict
from kernels.learning.trials import Trial, Trials

TIMES, MORE = 1.1, 0.02
LONGER = 4


@dataclass
class Cautious(Trials):
    """The policy over `wires` for `seconds` of training; `kernels.learning.trials` says how to drive it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._bans: dict[str, int] = {}

    def judged(self, trials: Mapping[str, Trial]) -> dict[str, tuple[float, float]]:
        return {wire: self._judged(trial) for wire, trial in trials.items()}

    def limits(self, seconds: float, share: float) -> tuple[float, int]:
        return seconds, 0

    @property
    def length(self) -> float:
        """Seconds of a segment: more than its share of the run where measurements take long."""
        return max(super().length, LONGER * self.measuring / self.share)

    def stepped_back(self, trial: Trial) -> bool:
        return not trial.finite or trial.last > TIMES * self._before(trial) + MORE

    def ban(self, wire: str) -> None:
        self._bans[wire] = 2 * self._bans.get(wire, 0) or 1
        self.banned[wire] = self.segment + 1 + self._bans[wire]

    def _before(self, trial: Trial) -> float:
        """The loss at the start of the segment; before the first measurement, the first one of the trial."""
        return (self.begun[-1:] or trial.curve)[0][1]

    def _judged(self, trial: Trial) -> tuple[float, float]:
        loss = self._before(trial)
        x, y = np.array([*self.begun[-1:], *trial.curve]).T
        times = 1 + max(self.left_of_segment, 0.0) / trial.seconds
        there = predict(x, y, x[-1] + (times - 1) * (x[-1] - x[0]))
        if there.failed:
            return (loss - trial.last) / trial.seconds, np.nan
        return (loss - there.mean - there.sigma) / (times * trial.seconds), there.mean
