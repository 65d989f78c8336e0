"""Inside the nodes, then across them: few bytes between nodes, many inside."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from kernels.allreduce.ordering import ordering
from kernels.allreduce.schedule import OWN, TOTAL, Message, Round, Schedule, Sum
from kernels.guarantees import ChoiceError


def by_leaders(size: int, *, nodes: Sequence[Hashable] | None = None) -> Schedule:
    """Whole vectors: to the first rank of each node, among these, and back inside; three steps."""
    return _schedule(size, nodes, whole=True)


@ordering(
    "two-level",
    guarantee="run",
    why="each node adds in rank order, then the nodes' sums in the order of their first ranks; "
    "the rank count and the placement decide",
    short=by_leaders,
)
def two_level(size: int, *, nodes: Sequence[Hashable] | None = None) -> Schedule:
    """Sums inside each node, then across the nodes: each step as `direct`, all ranks of a node at work.

    `nodes[rank]` names the node of a rank, by default one for all; its ranks need not follow each other. The vector
    goes in as many lanes as the smallest node has ranks; one rank of each node adds a lane, and exchanges it with the
    ranks of the same lane on other nodes. For short vectors, each node's first rank adds the whole.
    """
    return _schedule(size, nodes, whole=False)


def _schedule(size: int, nodes: Sequence[Hashable] | None, whole: bool) -> Schedule:
    """Chunk lane * len(groups) + i is completed by node i in that lane; `whole`: the only chunk by all nodes."""
    labels = [0] * size if nodes is None else list(nodes)
    if len(labels) != size:
        raise ChoiceError(f"two-level: nodes names the nodes of {len(labels)} ranks; there are {size}")
    members: dict[Hashable, list[int]] = {}
    for rank, label in enumerate(labels):
        members.setdefault(label, []).append(rank)
    groups = list(members.values())  # in the order of their first ranks
    lanes = 1 if whole else min(map(len, groups))
    inside, across = max(map(len, groups)) > 1, len(groups) > 1

    def chunks_of(lane: int) -> range:
        return range(1) if whole else range(lane * len(groups), (lane + 1) * len(groups))

    def program(rank: int) -> tuple[Round, ...]:
        node = list(members).index(labels[rank])
        group = groups[node]
        place = group.index(rank)
        adds = place < lanes
        # The others, starting behind the own place, so that not all send to the first one first.
        mates = [(place + i) % len(group) for i in range(1, len(group))]
        others = [(node + i) % len(groups) for i in range(1, len(groups))] if adds else []
        mine = TOTAL if len(group) > 1 else OWN  # where the node's sum is

        def of(them: int) -> int:
            """The chunk that a node completes in this lane."""
            return chunks_of(place)[0 if whole else them]

        rounds = []
        if inside or not across:
            in_order = tuple(OWN if q == place else TOTAL + 1 + q for q in range(len(group)))
            sums = tuple(Sum(c, TOTAL, in_order) for c in chunks_of(place)) if adds else ()
            rounds.append(
                Round(
                    sends=tuple(Message(group[q], c, OWN) for q in mates if q < lanes for c in chunks_of(q)),
                    receives=tuple(
                        Message(group[q], c, TOTAL + 1 + q) for q in mates if adds for c in chunks_of(place)
                    ),
                    sums=sums if len(group) > 1 or not across else (),
                )
            )
        if across:
            in_order = tuple(mine if i == node else TOTAL + 1 + i for i in range(len(groups)))
            rounds.append(
                Round(
                    sends=tuple(Message(groups[i][place], of(i), mine) for i in others),
                    receives=tuple(Message(groups[i][place], of(node), TOTAL + 1 + i) for i in others),
                    sums=(Sum(of(node), TOTAL, in_order),) if adds else (),
                )
            )
        if across and not whole:
            rounds.append(
                Round(
                    sends=tuple(Message(groups[i][place], of(node), TOTAL) for i in others),
                    receives=tuple(Message(groups[i][place], of(i), TOTAL) for i in others),
                )
            )
        if inside:
            rounds.append(
                Round(
                    sends=tuple(Message(group[q], c, TOTAL) for q in mates if adds for c in chunks_of(place)),
                    receives=tuple(
                        Message(group[q], c, TOTAL) for q in mates if q < lanes for c in chunks_of(q)
                    ),
                )
            )
        return tuple(rounds)

    return Schedule(size, 1 if whole else lanes * len(groups), program)
