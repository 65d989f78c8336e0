"""The reduction tree of one element of a vector: what a schedule evaluates."""

from __future__ import annotations

from kernels.allreduce.schedule import Schedule
from kernels.allreduce.simulator import carry_out
from kernels.tree import Tree


def trees(schedule: Schedule, element: int, n: int) -> list[Tree]:
    """The tree of an element of a vector of n, as each rank evaluates it; leaves are numbers of
    ranks or, of a schedule over blocks, of blocks."""
    chunk = schedule.chunk_of(element, n)
    own = [[[leaf] * schedule.chunks for leaf in schedule.leaves(rank)] for rank in range(schedule.size)]
    return [values[chunk] for values in carry_out(schedule, own, _pairs)]


def _pairs(sources: list[Tree]) -> Tree:
    total = sources[0]
    for source in sources[1:]:
        total = (total, source)
    return total
