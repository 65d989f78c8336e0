"""Lanes of a sum: the number of running sums to which elements go in turn."""

from __future__ import annotations

from itertools import pairwise

from kernels.tree import Tree, canonical, fold


def lanes(tree: Tree) -> int | None:
    """The number of lanes of this tree: elements l, l + lanes, l + 2 lanes, ... are added in one running sum.

    1 for a sum from left to right. None where running sums add elements at other distances, or where none adds more
    than two: a tree of pairs has no lanes.
    """
    chains: list[list[int]] = []

    def node(children: list[list[int]]) -> list[int]:
        """The elements of a running sum; empty for any other sum."""
        first, *others = sorted(children, key=len, reverse=True)
        if first and all(len(other) == 1 for other in others):
            return [*first, *(other[0] for other in others)]
        chains.extend(child for child in children if len(child) > 1)
        return []

    whole = fold(canonical(tree), lambda index: [index], node)
    chains += [whole] if len(whole) > 1 else []
    distances = {b - a for chain in chains for a, b in pairwise(sorted(chain))}
    if len(distances) != 1 or max(map(len, chains)) < 3:
        return None
    return distances.pop()
