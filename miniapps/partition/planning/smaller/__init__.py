"""Writes operations in smaller ones, where an axis cuts a dim that the operation needs whole.

A softmax becomes a maximum, a sum and operations on elements; a lookup reads the rows of each part, and adds zeros for
others; a slice or a roll reads places of the operand, as a window does. The rules of the smaller operations then cut
them. Whether an operation is written so depends on the axes, never on a mesh, because it decides bits.

A module per family has a table SMALLER {operation: function}. A function gets the operation and the cut of each parted
label. It returns False if it cannot write it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from miniapps.partition.cuts.axes import Cut, Dim, is_cut
from miniapps.partition.graphs.graph import Graph, Node
from miniapps.partition.graphs.simplify import live, operation
from miniapps.partition.planning.propagate import Ruled, wished
from miniapps.partition.planning.smaller import attention, indexed, moved, normalised, pooled
from miniapps.partition.planning.smaller.pooled import POOL, POOL_BACK
from miniapps.partition.planning.smaller.work import Cuts, Smaller
from miniapps.partition.rules.project import Axes

FAMILIES = (normalised, indexed, moved, attention, pooled)
SMALLER: dict[str, Callable[[Smaller, Node, Cuts], bool]] = {
    name: function for family in FAMILIES for name, function in family.SMALLER.items()
}


def written(
    graph: Graph, nodes: Sequence[Ruled], wishes: Mapping[str, Cut], axes: Axes, ring: bool = False
) -> Graph | None:
    """The graph in which operations along wished cuts are written in smaller ones; None if there are none. `ring`:
    attention of cut keys in blocks."""
    chosen = {ruled.node.name: found for ruled in nodes if (found := parted(ruled, wishes, axes, ring))}
    join_pools(graph, chosen)
    if not chosen:
        return None
    work = Smaller(graph, axes)
    for node in graph.nodes:
        work.node = node
        done = False
        if node.name in chosen:
            before = len(work.nodes)
            done = SMALLER[operation(node.target)](work, node, chosen[node.name])
            assert done or len(work.nodes) == before, f"{node.name}: written in part"
        work.count += done
        if not done:
            work.nodes.append(node)
    return live(work.graph()) if work.count else None


def parted(ruled: Ruled, wishes: Mapping[str, Cut], axes: Axes, ring: bool) -> dict[Any, Dim]:
    """The parted labels that the wished cuts cut; with `ring` also queries and keys of attention, if both are."""
    if ring and operation(ruled.node.target) in attention.NAMES:
        labels = ruled.labels()
        cuts = [
            next(
                (
                    wishes[tensor.name][2]
                    for tensor, of in zip(ruled.read, labels, strict=False)
                    if of[2:3] == ((label,),)
                ),
                (),
            )
            for label in "qk"
        ]
        if all(map(is_cut, cuts)):
            return dict(zip("qk", cuts, strict=True))
    if not ruled.rule.parted or operation(ruled.node.target) not in SMALLER:
        return {}
    found = wished(ruled, ruled.rule.opened, wishes, axes)
    return {label: dim for label, dim in found.items() if label in ruled.rule.parted}


def join_pools(graph: Graph, chosen: dict[str, dict[Any, Dim]]) -> None:
    """Write a pool and its gradient both or not at all, since they pass on which element is the largest."""
    made = {f"{node.name}.1": node for node in graph.nodes if operation(node.target) == POOL}
    readers = graph.readers()
    for name, node in made.items():
        backward = [
            r for r in readers.get(name, ()) if operation(r.target) == POOL_BACK and r.args[-1] == f"%{name}"
        ]
        pair = [node, *backward]
        cuts = {label: dim for one in pair for label, dim in chosen.get(one.name, {}).items()}
        for one in pair:
            chosen.pop(one.name, None)
            if cuts and len(backward) == len(readers.get(name, ())) and name not in graph.outputs():
                chosen[one.name] = cuts
    for node in graph.nodes:
        if operation(node.target) == POOL_BACK and node.args[-1][1:] not in made:
            chosen.pop(node.name, None)
