"""Times of the messages of a reduction over given links, for `execution.emulated` and for estimates.

The link of a vertex (a rank, or a node with its ranks) limits them; it sends and receives at once. The bytes are those
of the schedule, and pass one after the other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernels import wires
from kernels.allreduce import coding, cost
from kernels.allreduce.accumulate import order_free
from kernels.allreduce.levels import ROUNDS
from kernels.allreduce.links import Links, places, read_plain
from kernels.allreduce.reduction import SHORT_BYTES, Reduction
from kernels.allreduce.schedule import Schedule
from kernels.guarantees import ChoiceError

# float64 numbers that mostly hold the exact sum of a rank's contributions, by the bytes of a contribution
EXPANDED = {8: 2, 4: 1, 2: 1}
UNIFORM = ("rate", "latency")


def links_of(text: str, size: int) -> Links:
    """Links between `size` ranks: all alike, `rate=20e6` (bytes per second) or `rate=20e6,latency=50e-6` (seconds), or
    from a file of `kernels.allreduce links --write`. Raises ChoiceError for bad values and links of other ranks."""
    if not text.startswith("rate="):
        links = read_plain(text)
        places(links, size)  # refuses links of other ranks
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
            "that `python -m kernels.allreduce links --write FILE` wrote"
        )
    rates = tuple(tuple(given["rate"] * (u != v) for v in range(size)) for u in range(size))
    return Links(rates, latencies=tuple((given["latency"],) * size for _ in range(size)))


def seconds(links: Links, size: int, pairs: Mapping[tuple[int, int], float], rounds: int) -> float:
    """Time in s of messages `pairs`, {(sender, receiver): bytes}, in `rounds` rounds: that of the busiest vertex, one
    message after the other, and a latency for each round."""
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
    """The reduction with a schedule that stands for one without: for `library` recursive doubling or, beyond
    SHORT_BYTES, Rabenseifner's, as most libraries choose; for `arrival` `linear`."""
    if reduction.entry.scheduled:
        return reduction
    short = math.prod(reduction.shape) * reduction.dtype.itemsize <= SHORT_BYTES
    of_library = "recursive-doubling" if short else "rabenseifner"
    return replace(reduction, ordering="linear" if reduction.ordering == "arrival" else of_library)


def traffic(
    reduction: Reduction, schedule: Schedule, counts: Sequence[int]
) -> tuple[Mapping[tuple[int, int], float], int]:
    """{(sender, receiver): bytes} of one call, and its rounds; `counts`: the number of contributions of every rank.

    The bytes of an exact sum of several contributions depend on the numbers: EXPANDED stands for them.
    """
    n, rounds = math.prod(reduction.shape), len(schedule.program(0))
    apart = order_free(reduction.accumulation)
    code = reduction.coding
    if code is not None:
        if code.inner is not None:
            return coding.sent(code, reduction.cells, schedule, counts if apart else None), ROUNDS
        if not apart:
            return coding.sent(code, reduction.cells, schedule), rounds
        if max(counts) * code.codec.bits <= coding.CHEAPEST_BITS:
            return coding.sent(code, reduction.cells, schedule, counts), rounds
        reduction = replace(reduction, wire=wires.PLAIN, tensors=None)
        schedule = reduction.schedule(len(counts))
    nbytes, total = element_bytes(reduction, max(counts)), reduction.dtype.itemsize
    return cost.sent(schedule, n, nbytes, total), rounds + reduction.contributions_travel


def element_bytes(reduction: Reduction, contributions: int) -> float:
    """Bytes of an element in a message if a rank brings up to that many contributions. If contributions travel, several
    of one rank do so as numbers with the same sum."""
    if not reduction.contributions_travel or contributions <= 1:
        return reduction.element_bytes
    return 8.0 * EXPANDED[reduction.dtype.itemsize]
