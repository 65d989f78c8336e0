"""The reduction tree that a schedule evaluates for one element of a vector. `tree NAME` prints it."""

from __future__ import annotations

from kernels.allreduce.schedule import Schedule
from kernels.allreduce.simulator import carry_out
from kernels.tree import Tree


def trees(schedule: Schedule, element: int, n: int) -> list[Tree]:
    """The tree of an element of a vector of n, as each rank evaluates it; leaves are numbers of
    ranks or, of a schedule over blocks, of blocks."""
    chunk = schedule.chunk_of(element, n)
    return [values[chunk] for values in of_chunks(schedule)]


def of_chunks(schedule: Schedule) -> list[list[Tree]]:
    """The tree of every chunk, as each rank evaluates it."""
    own = [[[leaf] * schedule.chunks for leaf in schedule.leaves(rank)] for rank in range(schedule.size)]
    return carry_out(schedule, own, _pairs)


def keeps_order(schedule: Schedule) -> bool:
    """Whether every chunk combines its contributions in ascending order, as if one after the other."""
    own = [[[[leaf]] * schedule.chunks for leaf in schedule.leaves(rank)] for rank in range(schedule.size)]
    totals = carry_out(schedule, own, lambda sources: [leaf for leaves in sources for leaf in leaves])
    return all(leaves == sorted(leaves) for chunks in totals for leaves in chunks)


def _pairs(sources: list[Tree]) -> Tree:
    total = sources[0]
    for source in sources[1:]:
        total = (total, source)
    return total


def trees_with_makers(schedule: Schedule) -> list[tuple[Tree, tuple[int, ...]]]:
    """The tree of every chunk as rank 0 evaluates it, and the rank that makes each of its additions, in the order of
    `kernels.tree.nodes`."""
    rounds = zip(*schedule.ranks(), strict=True)
    # In the order in which `carry_out` makes the sums.
    maker = iter([rank for current in rounds for rank, part in enumerate(current) for _ in part.sums])

    def add(sources: list[tuple[Tree, tuple[int, ...]]]) -> tuple[Tree, tuple[int, ...]]:
        rank = next(maker)
        total, makers = sources[0]
        for tree, others in sources[1:]:
            total, makers = (total, tree), (*makers, *others, rank)
        return total, makers

    own = [
        [[(leaf, ())] * schedule.chunks for leaf in schedule.leaves(rank)] for rank in range(schedule.size)
    ]
    return carry_out(schedule, own, add)[0]
