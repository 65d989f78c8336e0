"""A tree of k branches: partial sums go up to rank 0, the total comes down."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.allreduce.ordering import ordering
from kernels.allreduce.schedule import OWN, TOTAL, Message, Round, Schedule, Sum

Children = list[list[int]]  # of every rank, in the order of addition


def near(size: int, k: int) -> Children:
    """Rank r adds r + i d, i = 1 ... k - 1, for each d = 1, k, k^2, ... of which k d divides r."""
    children: Children = [[] for _ in range(size)]
    for rank in range(size):
        distance = 1
        while distance < size and rank // distance % k == 0:
            children[rank] += [rank + i * distance for i in range(1, k) if rank + i * distance < size]
            distance *= k
    return children


def far(size: int, k: int) -> Children:
    """As near, the farthest first."""
    return [own[::-1] for own in near(size, k)]


def depth(size: int, k: int) -> Children:
    """Ranks are numbered by subtrees, the largest first."""
    children: Children = [[] for _ in range(size)]
    height = 1
    while k**height < size:
        height += 1
    todo = [(0, height)]  # a rank, and the height of its subtree, which has k^height members
    while todo:
        rank, height = todo.pop()
        child = rank + 1
        for below in range(height - 1, -1, -1):
            for _ in range(k - 1):
                if child < size:
                    children[rank].append(child)
                    todo.append((child, below))
                child += k**below
    return children


def heap(size: int, k: int) -> Children:
    """Every rank has k children: k r + 1 ... k r + k."""
    return [list(range(k * rank + 1, min(k * rank + k + 1, size))) for rank in range(size)]


def levels(size: int, k: int) -> Children:
    """Every rank has k children, assigned in turn to the k^l ranks of the level above: r + k^l, r + 2 k^l, ..."""
    children: Children = [[] for _ in range(size)]
    first, width = 0, 1
    while first < size:
        for rank in range(first, min(first + width, size)):
            children[rank] = list(range(rank + width, min(rank + k * width + 1, size), width))[:k]
        first, width = first + width, width * k
    return children


SHAPES = {"near": near, "far": far, "depth": depth, "heap": heap, "levels": levels}


@ordering(
    "k-nomial",
    guarantee="run",
    why="a fixed tree over the ranks; the rank count, k and the tree's shape decide",
    choices={"tree": SHAPES},
)
def k_nomial(size: int, *, k: int = 4, tree: str = "near") -> Schedule:
    """Reduce to rank 0 along a tree of k branches, broadcast along the same.

    `tree`: near (the nearest rank is added first; `binomial` if k = 2), far (the farthest first; MPICH's knomial_2),
    depth (MPICH's knomial_1), heap (k children each; MPICH's kary), levels (k children each, assigned by level; Open
    MPI's binary tree). A rank adds its children's sums to its own one after the other.
    """
    return along(SHAPES[tree](size, k))


def along(children: Sequence[Sequence[int]]) -> Schedule:
    """Reduces to rank 0 and broadcasts; each rank adds its children to its own number, in the given order.

    Children have higher ranks than their parent. Children whose sums are ready at the same time send them in one round.
    """
    size = len(children)
    parent: list[int] = [-1] * size
    when = [0] * size  # the round in which a rank's sum goes to its parent
    for rank in reversed(range(size)):
        latest = 0
        for child in children[rank]:
            parent[child] = rank
            when[child] = latest = max(latest, when[child])
        when[rank] = latest + 1 if children[rank] else 0
    rounds = when[0]

    def program(rank: int) -> tuple[Round, ...]:
        if size == 1:
            return (Round(sums=(Sum(0, TOTAL, (OWN,)),)),)
        up, down, mine = [], [], OWN
        for index in range(rounds):
            if rank and index == when[rank]:
                up.append(Round(sends=(Message(parent[rank], 0, mine),)))
                down.append(Round(receives=(Message(parent[rank], 0, TOTAL),)))
                continue
            now = [child for child in children[rank] if when[child] == index]
            up.append(
                Round(
                    receives=tuple(Message(child, 0, 1 + i) for i, child in enumerate(now)),
                    sums=(Sum(0, TOTAL, (mine, *range(1, len(now) + 1))),) if now else (),
                )
            )
            down.append(Round(sends=tuple(Message(child, 0, TOTAL) for child in now)))
            mine = TOTAL if now else mine
        return tuple(up + down[::-1])

    return Schedule(size, 1, program)
