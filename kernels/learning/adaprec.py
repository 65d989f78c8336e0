"""AdaPrec (Oyama 2018), as it was published: the wire of the most predicted accuracy per second.

Y. Oyama, "AdaPrec: adaptive precision all-reduce", poster of 2018. In each segment every wire trains a share of the
segment's *steps* from one state. The Bayesian neural network of Klein, Falkner, Springenberg and Hutter (ICLR 2017)
reads the accuracies of all these trials, and of the run before them, and predicts the accuracy of each wire at the
start of the next segment. The wire with the largest gain per second goes on. Values are Top-N accuracies of held-out
samples, their abscissae steps.

The poster leaves open what we chose: the length of a segment and of a trial, and that accuracy per second means the
gain over the start of the segment, divided by the seconds that the segment takes with the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernels.learning.trials import Curve, Trial, Trials


@dataclass
class AdaPrec(Trials):
    """The policy over `wires` for `seconds` of training; `steps`: of a segment. `kernels.learning.trials` says how to
    drive it. Needs torch. Raises ValueError for fewer steps than a trial needs."""

    steps: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share * self.steps < 1:
            raise ValueError(
                f"a trial of {self.share:g} of {self.steps} steps has none: give more steps in a segment"
            )

    def judged(self, trials: Mapping[str, Trial]) -> dict[str, tuple[float, float]]:
        from kernels.learning.bayesian import predict  # loads torch

        before = self.begun
        start = before[-1][1] if before else min(trial.curve[0][1] for trial in trials.values())
        curves = [(*before, *trial.curve) for trial in trials.values()]
        at = max((before[-1][0] if before else 0.0) + self.steps, *(curve[-1][0] for curve in curves))
        wires = [[float(wire == other) for other in self.wires] for wire in trials]
        there = predict(wires, [tuple(np.array(curve).T) for curve in curves], at, self.segment)
        times = self.steps / round(self.share * self.steps)
        return {
            wire: ((end.mean - start) / (times * trial.seconds), end.mean)
            for end, (wire, trial) in zip(there, trials.items(), strict=True)
        }

    def limits(self, seconds: float, share: float) -> tuple[float, int]:
        return self.seconds - self.spent, round(share * self.steps)

    def checked(self, seconds: float, at: np.ndarray, values: np.ndarray) -> Curve:
        curve = super().checked(seconds, at, values)
        if any(np.isfinite(value) and not 0 <= value <= 1 for _, value in curve):
            raise ValueError("an accuracy is between 0 and 1")
        return curve
