"""Spanning trees packed into the links between ranks or nodes: each reduces and broadcasts its share of the vector."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import accumulate

from kernels.allreduce.links import read_packing
from kernels.allreduce.ordering import EQUAL, ordering
from kernels.allreduce.packing import ROOT, Packing, SpanningTree, equal
from kernels.allreduce.schedule import OWN, TOTAL, Message, Round, Schedule, Sum, evenly
from kernels.guarantees import ChoiceError

HELD, PARTIAL, ARRIVING = (
    1,
    2,
    3,
)  # slots: the sum of a node, the sum of a subtree, and the first slot for sums that arrive


def unsegmented(
    size: int,
    *,
    links: str = EQUAL,
    segments: int = 1,
    nodes: Sequence[Hashable] | None = None,
    packing: Packing | None = None,
) -> Schedule:
    """Each share in one piece; the first rank of a node adds inside it."""
    return _schedule(size, _placed(size, links, nodes, packing), 1, whole=True)


@ordering(
    "trees",
    guarantee="run",
    why="each node adds in rank order, then the nodes of a tree in ascending order; the rank count, the placement and "
    "the measured links decide",
    short=unsegmented,
)
def trees(
    size: int,
    *,
    links: str = EQUAL,
    segments: int = 2,
    nodes: Sequence[Hashable] | None = None,
    packing: Packing | None = None,
) -> Schedule:
    """Each share of the vector up and down a spanning tree of its own, packed into the measured links.

    `links`: a file of the command `links`, or `equal`, which gives the star around every node. Ranks
    of a node add first, each a part of every share, as in `two-level`. Shares go in `segments` that follow each other,
    so that all levels of all trees send at once (Wang et al. 2020, Blink; Zhao et al. 2024, ForestColl).

    `packing`: the file's packing for these ranks; None: the file is read here.
    """
    return _schedule(size, _placed(size, links, nodes, packing), segments, whole=False)


def _placed(size: int, links: str, nodes: Sequence[Hashable] | None, packing: Packing | None) -> Packing:
    """The packing for that many ranks. Raises ChoiceError if there is none."""
    if packing is None and links != EQUAL:
        packing = read_packing(links, size, nodes)
    if packing is None:
        labels = range(size) if nodes is None else nodes
        numbers = {label: vertex for vertex, label in enumerate(dict.fromkeys(labels))}
        packing = equal(len(numbers), [numbers[label] for label in labels])
    if len(packing.places) != size:
        raise ChoiceError(f"trees: this packing is for {len(packing.places)} ranks; there are {size}")
    return packing


def _schedule(size: int, packing: Packing, segments: int, whole: bool) -> Schedule:
    """Chunk (tree * lanes + lane) * segments + segment is one segment of one lane of a tree's share. It passes
    through stages, one a round: inside the nodes, up the tree, down the tree, inside the nodes. Segment s is s rounds
    behind."""
    groups: list[list[int]] = [[] for _ in range(packing.vertices)]
    for rank, vertex in enumerate(packing.places):
        groups[vertex].append(rank)
    trees = packing.trees
    lanes = 1 if whole else min(map(len, groups))
    inside = max(map(len, groups)) > 1
    chunks = len(trees) * lanes * segments
    rounds = max(2 * inside + 2 * max(tree.height for tree in trees), 1) + segments - 1
    mates_from = ARRIVING + 2 * packing.vertices

    def program(rank: int) -> tuple[Round, ...]:
        vertex = packing.places[rank]
        group = groups[vertex]
        place = group.index(rank)
        mates = [(place + i) % len(group) for i in range(1, len(group))]
        adds = place < lanes
        mine = HELD if mates else OWN  # where the node's sum is
        sends: list[list[Message]] = [[] for _ in range(rounds)]
        receives: list[list[Message]] = [[] for _ in range(rounds)]
        sums: list[list[Sum]] = [[] for _ in range(rounds)]
        for number, tree in enumerate(trees):
            children, depth, up = tree.children[vertex], tree.depths[vertex], tree.parents[vertex]
            from_children = inside + tree.height - depth - 1  # the stage in which their sums arrive
            from_parent = inside + tree.height + depth - 1
            for segment in range(segments):

                def chunk(lane: int) -> int:
                    return (number * lanes + lane) * segments + segment  # noqa: B023

                own = chunk(place)
                if mates:
                    sends[segment] += [Message(group[q], chunk(q), OWN) for q in mates if q < lanes]
                if mates and adds:
                    receives[segment] += [Message(group[q], own, mates_from + q) for q in mates]
                    in_order = tuple(OWN if q == place else mates_from + q for q in range(len(group)))
                    sums[segment].append(Sum(own, TOTAL if len(groups) == 1 else HELD, in_order))
                if adds and children:
                    at = segment + from_children
                    receives[at] += [Message(groups[v][place], own, _slot(v, tree)) for v in children]
                    sources = sorted([(vertex, mine), *((v, _slot(v, tree)) for v in children)])
                    into = TOTAL if up == ROOT else PARTIAL
                    sums[at].append(Sum(own, into, tuple(slot for _, slot in sources)))
                    sends[segment + from_parent + 1] += [
                        Message(groups[v][place], own, TOTAL) for v in children
                    ]
                if adds and up != ROOT:
                    above = groups[up][place]
                    sends[segment + from_children + 1].append(
                        Message(above, own, PARTIAL if children else mine)
                    )
                    receives[segment + from_parent].append(Message(above, own, TOTAL))
                if mates and adds:
                    sends[segment + from_parent + 1] += [Message(group[q], own, TOTAL) for q in mates]
                if mates:
                    receives[segment + from_parent + 1] += [
                        Message(group[q], chunk(q), TOTAL) for q in mates if q < lanes
                    ]
        if size == 1:
            sums[0] = [Sum(chunk, TOTAL, (OWN,)) for chunk in range(chunks)]
        return tuple(
            Round(tuple(s), tuple(r), tuple(a)) for s, r, a in zip(sends, receives, sums, strict=True)
        )

    ends = [0, *accumulate(tree.share for tree in trees)]

    def cut(n: int, chunks: int, chunk: int) -> tuple[int, int]:
        number, part = divmod(chunk, lanes * segments)
        first, behind = (n * ends[number + i] // ends[-1] for i in (0, 1))
        start, stop = evenly(behind - first, lanes * segments, part)
        return first + start, first + stop

    return Schedule(size, chunks, program, cut=cut)


def _slot(vertex: int, tree: SpanningTree) -> int:
    """The slot for the sum of a vertex at its parent: another if it has added, as it then sends another slot."""
    return ARRIVING + 2 * vertex + bool(tree.children[vertex])
