"""Two binary trees over the same ranks, each for half of the vector: every rank works for both halves."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.allreduce.ordering import ordering
from kernels.allreduce.schedule import OWN, TOTAL, Message, Round, Schedule, Sum


@dataclass(frozen=True)
class BinaryTree:
    """A binary tree over ranks in order: a rank's left child's ranks are lower, its right child's higher."""

    parent: tuple[int | None, ...]
    children: tuple[tuple[int | None, int | None], ...]  # left, right
    depth: tuple[int, ...]  # steps from the root


def pair(size: int) -> tuple[BinaryTree, BinaryTree]:
    """The two trees: ranks that have children in one are leaves of the other.

    Places are numbered from 1. In the first tree a place's height is the number of times that 2 divides it: odd places
    are leaves, and even ones have at least a left child. The second tree is the first over one place more, shifted:
    place 1 is left out, and odd and even change roles. Unlike the second tree of the paper, which mirrors or rotates
    the first, it keeps the ranks in order, for one step more of depth when the size is 2^k - 1.
    """
    return _tree(size, 0), _tree(size, 1)


def _tree(size: int, shift: int) -> BinaryTree:
    """Rank r is at place r + 1 + shift; places below 1 + shift are left out."""
    parent: list[int | None] = [None] * size
    children: list[tuple[int | None, int | None]] = [(None, None)] * size
    depth = [0] * size

    def grow(first: int, last: int, above: int | None, level: int) -> int | None:
        """The rank at the root of places first ... last, where first - 1 is 0 or a multiple of a large power of 2."""
        if last < max(first, 1 + shift):
            return None
        place = first - 1 + (1 << ((last - first + 1).bit_length() - 1))
        rank = place - 1 - shift
        parent[rank], depth[rank] = above, level
        children[rank] = grow(first, place - 1, rank, level + 1), grow(place + 1, last, rank, level + 1)
        return rank

    grow(1, size + shift, None, 0)
    return BinaryTree(tuple(parent), tuple(children), tuple(depth))


def unsegmented(size: int, *, segments: int = 1) -> Schedule:
    """Each half in one piece, whatever `segments` is for long vectors."""
    return _schedule(size, 1)


@ordering(
    "double-tree",
    guarantee="run",
    why="a fixed binary tree over the ranks for each half of the vector; the rank count and the half decide",
    short=unsegmented,
)
def double_tree(size: int, *, segments: int = 8) -> Schedule:
    """Each half of the vector up and down a binary tree of its own, in segments that follow each other.

    A rank that adds in one tree only sends in the other, so that all are equally busy: nearly the least bytes, in a
    number of steps that grows with log size (Sanders, Speck and Traeff 2009). A rank adds the sum of its left subtree,
    its own contribution, and the sum of its right subtree: both trees keep the ranks in order.
    """
    return _schedule(size, segments)


def _schedule(size: int, segments: int) -> Schedule:
    """Segment s of a tree's half is s rounds behind the first. Its chunk is tree * segments + s."""
    both = pair(size)
    height = max(max(tree.depth) for tree in both)
    rounds = 2 * height + segments - 1

    def program(rank: int) -> tuple[Round, ...]:
        if size == 1:
            return (Round(sums=tuple(Sum(c, TOTAL, (OWN,)) for c in range(2 * segments))),)
        sends: list[list[Message]] = [[] for _ in range(rounds)]
        receives: list[list[Message]] = [[] for _ in range(rounds)]
        sums: list[list[Sum]] = [[] for _ in range(rounds)]
        for number, tree in enumerate(both):
            parent, depth = tree.parent[rank], tree.depth[rank]
            left, right = tree.children[rank]
            below = [(child, slot) for child, slot in ((left, 1), (right, 2)) if child is not None]
            sources = tuple(
                slot for slot, is_there in ((1, left), (OWN, rank), (2, right)) if is_there is not None
            )
            for segment in range(segments):
                chunk = number * segments + segment
                # A rank of depth d sends its sum in round height - d, and gets the total in round height + d - 1.
                if below:
                    at = segment + height - depth - 1
                    receives[at] += [Message(child, chunk, slot) for child, slot in below]
                    sums[at].append(Sum(chunk, TOTAL, sources))
                    sends[segment + height + depth] += [Message(child, chunk, TOTAL) for child, _ in below]
                if parent is not None:
                    sends[segment + height - depth].append(Message(parent, chunk, TOTAL if below else OWN))
                    receives[segment + height + depth - 1].append(Message(parent, chunk, TOTAL))
        return tuple(
            Round(tuple(s), tuple(r), tuple(a)) for s, r, a in zip(sends, receives, sums, strict=True)
        )

    return Schedule(size, 2 * segments, program)
