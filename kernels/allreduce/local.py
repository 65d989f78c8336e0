"""A rank's additions alone: the trees over its own contributions that a schedule evaluates before its first message.

A rank may evaluate them while contributions come one by one, so that it need not keep most of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import count

from kernels.allreduce.schedule import OWN, TOTAL, Message, Round, Schedule, Sum
from kernels.tree import Tree


def ahead(schedule: Schedule, rank: int) -> tuple[list[Tree], tuple[Round, ...]]:
    """Returns trees over the contributions of `rank`, numbered from 0, and its rounds with the sums of these trees in
    place of the contributions: slot OWN - i holds the sum of tree i.

    Each contribution is a tree of its own if the first round has messages, or if different trees add the chunks of the
    vector.
    """
    rounds = schedule.program(rank)
    alone = [*range(len(schedule.leaves(rank)))]
    if not rounds or rounds[0].sends or rounds[0].receives:
        return alone, rounds
    trees: dict[tuple[int, int], Tree] = {}  # by slot and chunk

    def tree_of(slot: int, chunk: int) -> Tree:
        return OWN - slot if slot <= OWN else trees[slot, chunk]

    for s in rounds[0].sums:
        trees[s.into, s.chunk] = reduce(lambda a, b: (a, b), (tree_of(x, s.chunk) for x in s.sources))
    later = rounds[1:]
    places = [place for place in _read(later, schedule.chunks) if place[0] <= OWN or place in trees]
    roots = list(dict.fromkeys(tree_of(*place) for place in places))
    leaves = [leaf for root in roots for leaf in _leaves(root)]
    if len(set(leaves)) < len(leaves):
        return alone, rounds
    slot = {root: OWN - i for i, root in enumerate(roots)}

    def renamed(messages: tuple[Message, ...]) -> tuple[Message, ...]:
        return tuple(Message(m.peer, m.chunk, moved(m.slot)) for m in messages)

    def moved(number: int) -> int:
        return slot[OWN - number] if number <= OWN else number

    copies = tuple(Sum(c, s, (slot[trees[s, c]],)) for s, c in places if s > OWN)
    return roots, (
        Round(sums=copies),
        *(
            Round(
                renamed(r.sends),
                r.receives,
                tuple(Sum(s.chunk, s.into, tuple(map(moved, s.sources))) for s in r.sums),
            )
            for r in later
        ),
    )


def _read(rounds: Iterable[Round], chunks: int) -> list[tuple[int, int]]:
    """The places (slot, chunk) that these rounds read before they write them; the total is read at the end."""
    read: dict[tuple[int, int], None] = {}
    written: set[tuple[int, int]] = set()

    def see(places: Iterable[tuple[int, int]]) -> None:
        read.update((place, None) for place in places if place not in written)

    for r in rounds:
        see((m.slot, m.chunk) for m in r.sends)
        written.update((m.slot, m.chunk) for m in r.receives)
        for s in r.sums:
            see((x, s.chunk) for x in s.sources)
            written.add((s.into, s.chunk))
    see((TOTAL, chunk) for chunk in range(chunks))
    return list(read)


def _leaves(tree: Tree) -> list[int]:
    leaves, todo = [], [tree]
    while todo:
        part = todo.pop()
        if isinstance(part, tuple):
            todo.extend(part)
        else:
            leaves.append(part)
    return leaves


def left_to_right(k: int) -> list[Tree]:
    """The tree that adds k contributions one after the other; none for k = 0."""
    numbers: Iterator[Tree] = iter(range(k))
    return [reduce(lambda a, b: (a, b), numbers)] if k else []


def parents(trees: Iterable[Tree], k: int) -> tuple[list[int], dict[int, tuple[int, int]]]:
    """The roots of trees over contributions 0 ... k - 1, and for every other node its parent and which child it is.

    Contributions keep their numbers; other nodes are numbered from k on.
    """
    number = count(k)
    roots: list[int] = []
    above: dict[int, tuple[int, int]] = {}
    todo: list[tuple[Tree, int]] = []
    for tree in trees:
        roots.append(next(number) if isinstance(tree, tuple) else tree)
        todo.append((tree, roots[-1]))
    while todo:
        tree, node = todo.pop()
        for side, child in enumerate(tree if isinstance(tree, tuple) else ()):
            below = next(number) if isinstance(child, tuple) else child
            above[below] = node, side
            todo.append((child, below))
    return roots, above
