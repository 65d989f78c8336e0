"""The cost of a schedule: rounds, messages, bytes and additions, and its time in the alpha-beta-gamma model.

Traffic between nodes is counted by node, since the ranks of a node share its
link. `cost` on the command line compares the orderings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial

from kernels.allreduce.schedule import Round, Schedule, gathers_from, transfers


@dataclass(frozen=True)
class Cost:
    """Counts of one all-reduce.

    `messages` and `bytes` are totals over all ranks; `crossing` is the part of `bytes` that goes between nodes.
    `critical_*` sum over rounds the most that any rank sends or receives inside its node, or adds. `crossing_*` sum the
    most messages of any rank, and the most bytes of any node, to or from other nodes.
    """

    rounds: int
    messages: int
    bytes: int
    critical_messages: int
    critical_bytes: int
    critical_additions: int
    crossing: int = 0
    crossing_messages: int = 0
    crossing_bytes: int = 0

    def seconds(
        self, alpha: float, beta: float, gamma: float, alpha_across: float = 0.0, beta_across: float = 0.0
    ) -> float:
        """Returns the time in s for a latency `alpha` (s), a time per byte `beta` (s) and one per addition `gamma` (s).
        `alpha_across` and `beta_across`: the latency between nodes, and the time per byte of a node's link.

        Each rank sends one message after the other, and receives meanwhile (Hockney's model, full duplex), with
        constants for each class of links (Hoefler, Gropp, Thakur, Traeff 2010, section 3.2).
        """
        inside = alpha * self.critical_messages + beta * self.critical_bytes + gamma * self.critical_additions
        return inside + alpha_across * self.crossing_messages + beta_across * self.crossing_bytes


def cost(
    schedule: Schedule,
    n: int,
    itemsize: float,
    total_itemsize: float | None = None,
    nodes: Sequence[Hashable] | None = None,
) -> Cost:
    """The cost of all-reducing n elements of `itemsize` bytes.

    `total_itemsize`: bytes of an element in rounds that carry finished totals; None: `itemsize`. `nodes`: the node of
    every rank; None: one node.
    """
    nodes = [0] * schedule.size if nodes is None else nodes
    gathers = gathers_from(schedule) if total_itemsize not in (None, itemsize) else None
    rounds = []
    for index, current in enumerate(zip(*schedule.ranks(), strict=True)):
        size = total_itemsize if gathers is not None and index >= gathers else itemsize
        assert size is not None
        rounds.append(_counts(current, partial(schedule.bounds, n), size, nodes))
    return (
        Cost(len(rounds), *(sum(column) for column in zip(*rounds, strict=True)))
        if rounds
        else Cost(*[0] * 6)
    )


def sent(
    schedule: Schedule, n: int, itemsize: float, total_itemsize: float | None = None
) -> dict[tuple[int, int], int]:
    """{(sender, receiver): bytes} of one all-reduce of n elements; sizes as in `cost`."""
    gathers = gathers_from(schedule) if total_itemsize not in (None, itemsize) else None
    by_pair: Counter[tuple[int, int]] = Counter()
    for rank, rounds in enumerate(schedule.ranks()):
        for index, current in enumerate(rounds):
            size = total_itemsize if gathers is not None and index >= gathers else itemsize
            assert size is not None
            for t in transfers(current.sends, partial(schedule.bounds, n)):
                by_pair[rank, t.peer] += round((t.stop - t.start) * size)
    return by_pair


def _counts(
    current: Sequence[Round],
    bounds: Callable[[int], tuple[int, int]],
    itemsize: float,
    nodes: Sequence[Hashable],
) -> tuple[int, ...]:
    """All fields of a Cost after the first, for one round."""
    ways = 2  # sent, received
    inside_messages, inside_bytes, across_messages = (
        [[0] * len(current) for _ in range(ways)] for _ in range(3)
    )
    across_bytes: list[Counter[Hashable]] = [Counter(), Counter()]
    messages = total = crossing = most = 0
    for rank, part in enumerate(current):
        for way, listed in enumerate((part.sends, part.receives)):
            for t in transfers(listed, bounds):
                nbytes, crosses = round((t.stop - t.start) * itemsize), nodes[t.peer] != nodes[rank]
                if way == 0:
                    messages, total, crossing = messages + 1, total + nbytes, crossing + nbytes * crosses
                if crosses:
                    across_messages[way][rank] += 1
                    across_bytes[way][nodes[rank]] += nbytes
                else:
                    inside_messages[way][rank] += 1
                    inside_bytes[way][rank] += nbytes
        spans = ((*bounds(s.chunk), len(s.sources) - 1) for s in part.sums)
        most = max(most, sum((stop - start) * additions for start, stop, additions in spans))
    return (
        messages,
        total,
        *(max(map(max, counts)) for counts in (inside_messages, inside_bytes)),
        most,
        crossing,
        max(map(max, across_messages)),
        max(max(counts.values(), default=0) for counts in across_bytes),
    )
