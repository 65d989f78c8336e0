"""The classes of causes of a first difference, and the evidence for each.

| class | evidence |
|---|---|
| `method` | the runs had other options that change the method, or made other choices from a clock: maybe intended |
| `environment` | processors, libraries or settings differ, which guarantees do not cover |
| `input` | the input differs (`input:*`), or the first records differ before any event |
| `random state` | torch's random state differs as a watched model begins its forward pass |
| `local kernel` | the result of a kernel or the blocks of one rank differ, and their inputs are equal |
| `halo exchange` | every block sent the same, and some received something else: a message was lost or changed |
| `message order` | contributions are equal, but the total and its recorded order of arrival differ; |
| | or a receive from any source took another rank's message |
| `collective` | contributions are equal, the total differs, and no recorded order differs: another schedule, or a |
| | wrong sum; or the number of ranks differs, and the difference is as small as rounding makes it |
| `contributions or order` | the number of ranks differs, and the difference is larger: it is rounding only if the |
| | partial sums of the ranks amplify it |
| `memory` | the state changed between two records, although nothing ran on it: a flipped bit |

A run with `--record messages` has a record at each of these places (miniapps.runner.watch), and the first record that
differs decides the class (`from_messages`). If only states were recorded, the blocks that differ after the step decide
(`from_states`); a second class then remains possible and is named too. Methods and environments come first: if they
differ, the kernel or sum is only the place where the difference shows. A lost message has its own class, since another
person has to repair it.

Operation, type and guarantee show whether an order can change the total at all. If it can, the sizes of the numbers
decide whether rounding explains the difference (`analysis.divergence.rounding`).
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.divergence.points import Point
from analysis.divergence.preceding import Event
from analysis.divergence.rounding import OPEN, Judgement

KERNEL, COLLECTIVE, ORDER, HALO, MEMORY, FROM_INPUT = (
    "local kernel", "collective", "message order", "halo exchange", "memory", "input"
)  # fmt: skip
RANDOM_STATE = "random state"
METHOD, ENVIRONMENT = "method", "environment"
UNDECIDED, INSIDE = "contributions or order", "order inside a rank"
UNJUDGED = Judgement(OPEN, None, "")


@dataclass(frozen=True)
class Operation:
    """The operation of a watched module. `module`: its class; empty for code outside of modules. `direction`: "forward"
    or "backward". `part`: the parameter, or "input", whose gradient it is; empty for all. `dtype` of its numbers."""

    module: str
    direction: str
    part: str = ""
    dtype: str = ""


@dataclass(frozen=True)
class Cause:
    """The class of the first difference, and its place in the second run of a comparison.

    `at` is the record that differs, `name` the kernel, exchange or reducer. `rank` executed it; None: all ranks
    together. `event` is its region; None: events were not recorded. `instead` is a second class that the evidence does
    not rule out, `instead_why` the reason; empty: there is none. `rounding` judges whether rounding explains the
    difference; `next` advises the user. `operation` is that of a watched module, else None.
    """

    kind: str
    at: Point
    name: str
    rank: int | None
    event: Event | None
    why: tuple[str, ...]
    instead: str = ""
    instead_why: str = ""
    rounding: Judgement = UNJUDGED
    next: str = ""
    operation: Operation | None = None

    @property
    def step(self) -> int:
        """The step of `event`, or of the record if there is no event, in the first run's count of steps."""
        one, other = self.at.steps  # events are those of the second run
        return one if self.event is None else self.event.step - other + one
