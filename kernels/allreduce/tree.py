"""The reduction tree of one element: what a schedule evaluates, as nested pairs and as text."""

from __future__ import annotations

from kernels.allreduce.schedule import Schedule, chunk_of
from kernels.allreduce.simulator import carry_out

Tree = int | tuple["Tree", "Tree"]
"""A rank's contribution (its number), or the sum of two trees."""


def trees(schedule: Schedule, element: int, n: int) -> list[Tree]:
    """The tree of an element of a vector of n, as each rank evaluates it."""
    chunk = chunk_of(element, n, schedule.chunks)
    own = [[rank] * schedule.chunks for rank in range(schedule.size)]
    return [values[chunk] for values in carry_out(schedule, own, _pairs)]


def _pairs(sources: list[Tree]) -> Tree:
    total = sources[0]
    for source in sources[1:]:
        total = (total, source)
    return total


def expression(tree: Tree) -> str:
    """The tree as text that Python evaluates: '((x[0] + x[1]) + x[2])'."""
    # Along the left side in a loop: in rank order a tree is as deep as there are ranks.
    right = []
    while not isinstance(tree, int):
        tree, added = tree
        right.append(f" + {expression(added)})")
    return "(" * len(right) + f"x[{tree}]" + "".join(reversed(right))
