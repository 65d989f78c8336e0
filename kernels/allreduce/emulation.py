"""How long the messages of a reduction take over given links, for `execution.emulated` and for estimates.

What is slow is the link of a vertex (a rank, or a node with its ranks), in and out at once. The bytes of a call are
those of the schedule, and pass one behind the other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernels import wires
from kernels.allreduce import coding, cost
from kernels.allreduce.accumulate import order_free
from kernels.allreduce.links import Links, places, read_plain
from kernels.allreduce.reduction import SHORT_BYTES, Reduction
from kernels.allreduce.schedule import Schedule
from kernels.guarantees import ChoiceError

# float64 numbers that the exact sum of a rank's contributions mostly takes, by the bytes of a contribution
EXPANDED = {8: 2, 4: 1, 2: 1}
UNIFORM = ("rate", "latency")


def links_of(text: str, size: int) -> Links:
    """Links between `size` ranks: all alike, `rate=20e6` (bytes per second) or `rate=20e6,latency=50e-6` (seconds), or
    those of a file as `kernels.allreduce links --write` makes it. Raises ChoiceError."""
    if not text.startswith("rate="):
        links = read_plain(text)
        places(links, size)  # refuses those of other ranks
        return links
    given = dict.fromkeys(UNIFORM, 0.0)
    for part in text.split(","):
        key, _, value = part.partition("=")
        try:
            given[key] = float(value) if key in UNIFORM else math.nan
        except ValueError:
            given[key] = math.nan
    if not all(map(math.isfinite, given.values())) or given["rate"] <= 0 or given["latency"] < 0:
        raise ChoiceError(
            f"links {text!r}: give rate=BYTES_PER_SECOND,latency=SECONDS, such as rate=20e6,latency=50e-6, or a file "
            "that `python -m kernels.allreduce links --write FILE` made"
        )
    rates = tuple(tuple(given["rate"] * (u != v) for v in range(size)) for u in range(size))
    return Links(rates, latencies=tuple((given["latency"],) * size for _ in range(size)))


def seconds(links: Links, size: int, pairs: Mapping[tuple[int, int], float], rounds: int) -> float:
    """The time that messages of `pairs`, {(rank, another): bytes}, take in so many rounds: that of the vertex with most
    to send or to receive, one message after the other, and a latency for each round."""
    where = places(links, size)
    busy: dict[tuple[int, int], float] = defaultdict(float)
    crossing = []
    for (rank, other), nbytes in pairs.items():
        u, v = where[rank], where[other]
        if u == v or not nbytes:
            continue
        if not links.rates[u][v]:
            raise ChoiceError(
                f"links: rank {rank} sends to rank {other}, and no link joins vertex {u} to {v}"
            )
        crossing.append((u, v))
        for key in ((u, 0), (v, 1)):  # out of one, into the other
            busy[key] += nbytes / links.rates[u][v]
    slowest = max((links.latencies[u][v] for u, v in crossing), default=0.0) if links.latencies else 0.0
    return max(busy.values(), default=0.0) + rounds * slowest


def in_place_of(reduction: Reduction) -> Reduction:
    """The reduction whose messages stand for those of one without a schedule: of `library` recursive doubling or, of
    more than SHORT_BYTES, Rabenseifner's, as most libraries do; of `arrival` those of `linear`."""
    if reduction.entry.scheduled:
        return reduction
    short = math.prod(reduction.shape) * reduction.dtype.itemsize <= SHORT_BYTES
    of_library = "recursive-doubling" if short else "rabenseifner"
    return replace(reduction, ordering="linear" if reduction.ordering == "arrival" else of_library)


def traffic(
    reduction: Reduction, schedule: Schedule, counts: Sequence[int]
) -> tuple[Mapping[tuple[int, int], float], int]:
    """{(rank, another): bytes} of one call, and its rounds; `counts`: the contributions of every rank.

    Of an exact sum of several contributions the bytes depend on the numbers: EXPANDED stands for them.
    """
    n, rounds = math.prod(reduction.shape), len(schedule.program(0))
    apart = order_free(reduction.accumulation)
    code = reduction.coding
    if code is not None:
        if not apart:
            return coding.sent(code, reduction.cells, schedule), rounds
        if max(counts) * code.codec.bits <= coding.CHEAPEST_BITS:
            return coding.sent(code, reduction.cells, schedule, counts), rounds
        reduction = replace(reduction, wire=wires.PLAIN, tensors=None)
        schedule = reduction.schedule(len(counts))
    nbytes, total = element_bytes(reduction, max(counts)), reduction.dtype.itemsize
    return cost.sent(schedule, n, nbytes, total), rounds + reduction.contributions_travel


def element_bytes(reduction: Reduction, contributions: int) -> float:
    """Bytes of an element in a message where ranks bring up to so many contributions: where these travel, several of a
    rank do so as words or numbers that stand for their sum."""
    if not reduction.contributions_travel or contributions <= 1:
        return reduction.element_bytes
    return 8.0 * EXPANDED[reduction.dtype.itemsize]
