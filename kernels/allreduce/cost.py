"""What a schedule costs: counts of rounds, messages, bytes and additions, and the alpha-beta-gamma time.

`cost` on the command line compares the orderings.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kernels.allreduce.schedule import Round, Schedule, transfers


@dataclass(frozen=True)
class Cost:
    """Counts of one all-reduce.

    `messages` and `bytes` are totals over all ranks. `critical_*` add up, over the rounds, the most that any
    one rank sends or receives, or adds.
    """

    rounds: int
    messages: int
    bytes: int
    critical_messages: int
    critical_bytes: int
    critical_additions: int

    def seconds(self, alpha: float, beta: float, gamma: float) -> float:
        """Time for a latency `alpha` (s), a time per byte `beta` (s) and a time per addition `gamma` (s).

        One message after the other per rank, sending and receiving at once (Hockney's model, full duplex).
        """
        return alpha * self.critical_messages + beta * self.critical_bytes + gamma * self.critical_additions


def cost(schedule: Schedule, n: int, itemsize: int) -> Cost:
    """The cost of all-reducing n elements of `itemsize` bytes."""
    programs = list(schedule.ranks())
    parts = [[_part(r, n, schedule) for r in current] for current in zip(*programs, strict=True)]
    return Cost(
        rounds=len(parts),
        messages=sum(part[0] for parts_ in parts for part in parts_),
        bytes=sum(part[1] for parts_ in parts for part in parts_) * itemsize,
        critical_messages=sum(max(max(part[0], part[2]) for part in parts_) for parts_ in parts),
        critical_bytes=sum(max(max(part[1], part[3]) for part in parts_) for parts_ in parts) * itemsize,
        critical_additions=sum(max(part[4] for part in parts_) for parts_ in parts),
    )


def _part(current: Round, n: int, schedule: Schedule) -> tuple[int, int, int, int, int]:
    """Counts of one rank and round: messages and elements sent, messages and elements received, additions."""
    bounds = partial(schedule.bounds, n)
    sent, received = transfers(current.sends, bounds), transfers(current.receives, bounds)
    additions = 0
    for s in current.sums:
        start, stop = bounds(s.chunk)
        additions += (stop - start) * (len(s.sources) - 1)
    return (
        len(sent),
        sum(t.stop - t.start for t in sent),
        len(received),
        sum(t.stop - t.start for t in received),
        additions,
    )
