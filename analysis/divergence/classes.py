"""The classes of first differences, and the evidence for each.

| class | evidence |
|---|---|
| `method` | the runs were told to compute in different ways, or chose these from a clock: it may be as intended |
| `environment` | processors, libraries or settings differ, for which no bits are promised |
| `input` | what a run starts from differs (`input:*`), or its first records do, before any event |
| `local kernel` | the result of a kernel differs, or what one rank's blocks hold, and nothing they were given does |
| `halo exchange` | every block sent the same, and some received something else: a message lost or changed |
| `message order` | equal contributions, another total, and another recorded order of arrival of that very sum; |
| | or a receive from any source took another rank's message |
| `collective` | equal contributions and another total, without such an order: another schedule, or a wrong sum; |
| | or a total over another number of ranks that differs as little as rounding makes it |
| `contributions or order` | a total over another number of ranks that differs by more, so that rounding would have to |
| | be amplified by what a rank added |
| `memory` | the state changed between two records, although nothing ran on it: a flipped bit |

A run with `--record messages` holds a record at every one of these places (miniapps.runner.watch), and the first record
that differs is the answer. Runs that record only states are judged by what differs after the step, which leaves more
than one answer: the other one is then named too. What was recorded of methods and environments is asked first: where
these differ, a kernel or a sum is only where it shows. A lost message is told apart from a local kernel, although a
halo exchange computes nothing, because who has to repair it is another.

Whether rounding explains the difference is judged from the sizes of the numbers (`analysis.divergence.rounding`), after
operation, type and guarantee were asked whether an order can change the total at all.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.divergence.points import Point
from analysis.divergence.preceding import Event
from analysis.divergence.rounding import OPEN, Judgement

KERNEL, COLLECTIVE, ORDER, HALO, MEMORY, FROM_INPUT = (
    "local kernel", "collective", "message order", "halo exchange", "memory", "input"
)  # fmt: skip
METHOD, ENVIRONMENT = "method", "environment"
UNDECIDED, INSIDE = "contributions or order", "order inside a rank"
UNJUDGED = Judgement(OPEN, None, "")


@dataclass(frozen=True)
class Cause:
    """The class of the first difference and its place, in the second run of a comparison.

    `at` is the record by which it was found, `name` the kernel, exchange or reducer, `rank` the one that did it, None
    where all ranks do it together; `event` its region, None where events were not recorded. `instead`: the class that
    the evidence does not rule out, with the reason, empty where it rules out all others. `rounding`: whether rounding
    explains the difference; `next`: what to do now.
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

    @property
    def step(self) -> int:
        """The step in which it happened, as far as known."""
        return self.at.step if self.event is None else self.event.step
