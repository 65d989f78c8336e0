"""A tree over the blocks of the problem instead of the ranks: the same bits for any number of ranks."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.allreduce.ordering import ordering
from kernels.allreduce.schedule import OWN, TOTAL, Message, Round, Schedule, Sum
from kernels.guarantees import ChoiceError

Node = tuple[int, int]  # the blocks [first, stop) below a node of the tree


def children(node: Node) -> tuple[Node, Node]:
    """The left and right child of a node of two blocks or more.

    The aligned binary tree: for s = 1, 2, 4, ...: p[i] += p[i + s] for i a multiple of 2s, i + s < blocks.
    """
    first, stop = node
    middle = first + (1 << ((stop - first - 1).bit_length() - 1))
    return (first, middle), (middle, stop)


def roots(node: Node, owners: Sequence[int]) -> list[Node]:
    """The largest subtrees of a node that one rank owns entirely, left to right."""
    if node[1] - node[0] == 1:
        return [node]
    left, right = (roots(child, owners) for child in children(node))
    if len(left) == len(right) == 1 and owners[left[0][0]] == owners[right[0][0]]:
        return [node]
    return left + right


def exchange(size: int, *, owners: Sequence[int] | None = None) -> Schedule:
    """For short vectors. If every rank owns one subtree, all of one depth, sums meet in pairs as in recursive doubling.
    Else every rank sends its sums to all others, and each completes the tree."""
    owners = _checked(size, owners)
    own_roots = roots((0, len(owners)), owners)
    if _doubles(size, owners, own_roots):
        return _doubling(size, owners, own_roots)
    return _schedule(size, owners, whole=True)


@ordering(
    "block-tree",
    guarantee="layout",
    why="a fixed binary tree over the blocks of the problem; their number decides, not their owners",
    short=exchange,
)
def block_tree(size: int, *, owners: Sequence[int] | None = None) -> Schedule:
    """A binary tree over global blocks: each rank sums the subtrees it owns, then as `direct` over these sums.

    `owners[block]` is the rank that owns a block, by default one block on each rank. The tree knows nothing of ranks,
    so neither their number nor the ownership shows in the bits. Least bytes if the blocks of a rank make one subtree;
    scattered blocks cost one message for each subtree.
    """
    return _schedule(size, _checked(size, owners), whole=False)


def elements_sent(
    owners: Sequence[int], size: int, n: int, short: bool, bounds: Sequence[int] | None = None
) -> int:
    """The elements that `size` ranks send together for vectors of n, as `kernels.allreduce.cost` counts them message by
    message. `short`: by `exchange`; `bounds`: of the ranks' parts in a reduce-scatter. Takes time in proportion to
    blocks and ranks, not to pairs of ranks.
    """
    own_roots = roots((0, len(owners)), owners)
    if short and _doubles(size, owners, own_roots):
        return n * size * (size.bit_length() - 1) if bounds is None else n * (size - 1)
    if short and bounds is None:
        return n * len(own_roots) * (size - 1)
    parts = [n * rank // size for rank in range(size + 1)] if bounds is None else bounds
    collected = sum(n - (parts[owners[first] + 1] - parts[owners[first]]) for first, _ in own_roots)
    return collected + (n * (size - 1) if bounds is None else 0)


def _doubles(size: int, owners: Sequence[int], own_roots: list[Node]) -> bool:
    """Whether every rank owns one subtree, in order and all of one depth."""
    in_order = [owners[first] for first, _ in own_roots] == list(range(size))
    return size > 2 and in_order and _balanced((0, len(owners)), set(own_roots))


def _balanced(node: Node, own_roots: set[Node]) -> bool:
    """Whether all the subtrees `own_roots` lie equally deep below the node."""
    level = [node]
    while not own_roots.intersection(level):
        level = [child for parent in level for child in children(parent)]
    return own_roots.issuperset(level)


def _below(
    node: Node, own: dict[Node, int], chunk: int, places: tuple[int, ...], sums: list[Sum], into=None
) -> int:
    """The slot of a node that a rank owns whole, after it adds to `sums`; by default the first of `places`.

    `into` is written last, when no contribution is to be read any more.
    """
    if node in own:
        return own[node]
    left, right = children(node)
    sources = _below(left, own, chunk, places, sums), _below(right, own, chunk, places[1:], sums)
    sums.append(Sum(chunk, places[0] if into is None else into, sources))
    return sums[-1].into


def _doubling(size: int, owners: Sequence[int], own_roots: list[Node]) -> Schedule:
    """Rank r owns the subtree own_roots[r]; a partner's sum arrives in slot 1."""

    def program(rank: int) -> tuple[Round, ...]:
        first, stop = own_roots[rank]
        own = {(block, block + 1): OWN - i for i, block in enumerate(range(first, stop))}
        scratch = tuple(range(2, 2 + (stop - first).bit_length()))
        local: list[Sum] = []
        mine = _below(own_roots[rank], own, 0, scratch, local, into=TOTAL)
        rounds = [Round(sums=tuple(local))] if summed_before else []
        for distance in (1 << i for i in range(size.bit_length() - 1)):
            peer = rank ^ distance
            sources = (mine, 1) if rank < peer else (1, mine)
            rounds.append(Round((Message(peer, 0, mine),), (Message(peer, 0, 1),), (Sum(0, TOTAL, sources),)))
            mine = TOTAL
        return tuple(rounds)

    summed_before = len(owners) > size
    return Schedule(size, 1, program, leaves=lambda rank: tuple(range(*own_roots[rank])), uniform=True)


def _schedule(size: int, owners: Sequence[int], whole: bool) -> Schedule:
    """Each rank completes the chunk of its number; `whole`: all ranks complete the only chunk."""
    top = (0, len(owners))
    own_roots = roots(top, owners)
    alone = len(own_roots) == 1
    blocks: list[list[int]] = [[] for _ in range(size)]
    for block, owner in enumerate(owners):
        blocks[owner].append(block)
    sent: list[list[Node]] = [[] for _ in range(size)]
    for node in own_roots:
        sent[owners[node[0]]].append(node)
    # A subtree's sum has the same slot on all ranks that store it; slots of partial sums follow all of these.
    slot = {node: TOTAL if alone else TOTAL + 1 + i for i, node in enumerate(own_roots)}
    scratch = tuple(TOTAL + 1 + len(own_roots) + i for i in range(len(owners).bit_length()))
    chunks = 1 if whole else size
    summed_before = any(stop - first > 1 for first, stop in own_roots)

    def program(rank: int) -> tuple[Round, ...]:
        own = {(block, block + 1): OWN - i for i, block in enumerate(blocks[rank])}
        held = slot | own  # a subtree of one block is the contribution itself
        mine = 0 if whole else rank

        def above(node: Node) -> int:
            """The slot of a node; the sum overwrites one of its two sources. At most one of these is a contribution."""
            if node in slot:
                return held[node]
            sources = tuple(above(child) for child in children(node))
            complete.append(Sum(mine, TOTAL if node == top else max(sources), sources))
            return complete[-1].into

        local: list[Sum] = []
        for chunk in range(chunks):
            for node in sent[rank]:
                _below(node, own, chunk, scratch if alone else (slot[node], *scratch), local, into=slot[node])
        complete: list[Sum] = []
        result = above(top)
        if result != TOTAL:
            complete.append(Sum(mine, TOTAL, (result,)))
        if size == 1:
            return (Round(sums=(*local, *complete)),)
        # Starting behind the own rank, so that not all send to rank 0 first.
        others = [(rank + i) % size for i in range(1, size)]
        rounds = [Round(sums=tuple(local))] if summed_before else []
        rounds.append(
            Round(
                sends=tuple(Message(q, 0 if whole else q, held[node]) for q in others for node in sent[rank]),
                receives=tuple(Message(q, mine, slot[node]) for q in others for node in sent[q]),
                sums=tuple(complete),
            )
        )
        if not whole:
            rounds.append(
                Round(
                    sends=tuple(Message(q, rank, TOTAL) for q in others),
                    receives=tuple(Message(q, q, TOTAL) for q in others),
                )
            )
        return tuple(rounds)

    return Schedule(size, chunks, program, leaves=lambda rank: tuple(blocks[rank]), uniform=True)


def _checked(size: int, owners: Sequence[int] | None) -> tuple[int, ...]:
    owners = tuple(range(size) if owners is None else owners)
    if not owners:
        raise ChoiceError("block-tree: no rank has a block, so there is nothing to add: give it one or more")
    wrong = [(block, owner) for block, owner in enumerate(owners) if not 0 <= owner < size]
    if wrong:
        raise ChoiceError(
            f"block-tree: block {wrong[0][0]} is owned by rank {wrong[0][1]}; ranks are 0 ... {size - 1}"
        )
    return owners
