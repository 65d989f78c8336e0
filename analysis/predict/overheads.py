"""What a node of a program costs beside its work: Lin's five overheads (arXiv 2201.07821, section 3).

| | between | measured |
|---|---|---|
| T1 | two nodes | on the CPU, as a region that does nothing |
| T2 | the beginning of a node and its first launch | on a GPU only |
| T3 | its last launch and its end | on a GPU only |
| T4 | a launch itself | on a GPU only |
| T5 | two launches | on the CPU, as a kernel of one element |

On a CPU a launch is a call, so that only T1 and T5 remain.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.predict.calibration import Calibration

NOT_MEASURED = (
    "the overheads T2, T3 and T4 (before, after and of a launch) are of a GPU and were not measured"
)


@dataclass(frozen=True)
class Overheads:
    """Seconds."""

    node: float = 0.0  # T1
    call: float = 0.0  # T5

    @property
    def segment(self) -> float:
        """What a segment of work takes however little there is of it: a node with one call."""
        return self.node + self.call


def overheads(calibration: Calibration | None) -> Overheads:
    """The overheads of a calibration; zeros without one."""
    if calibration is None:
        return Overheads()
    return Overheads(calibration.overhead("region"), calibration.overhead("kernel"))
