"""The orderings: in which order the contributions of the ranks are added, as pure functions of the size.

A function returns the `Schedule` that carries the ordering out, or None where there is none of ours: the MPI
library decides (native), the network decides (arrival), or the order does not matter (fixed-point, exact).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kernels.allreduce.schedule import Message, Round, Schedule, Sum
from kernels.guarantees import LEVELS, ChoiceError, known, meets


@dataclass(frozen=True)
class Ordering:
    """A named ordering, what it promises about the bits, and why."""

    name: str
    guarantee: str
    why: str
    schedule: Callable[[int], Schedule | None] = field(repr=False)

    @property
    def summary(self) -> str:
        """First sentence of its description."""
        return " ".join((self.schedule.__doc__ or "").split("\n\n")[0].split())


_orderings: dict[str, Ordering] = {}


def ordering(name: str, *, guarantee: str, why: str) -> Callable[[Callable], Callable]:
    """Decorator that registers `function(size) -> Schedule | None` and returns it unchanged."""
    known("guarantee", guarantee, LEVELS)

    def register(function):
        _orderings[name] = Ordering(name, guarantee, why, function)
        return function

    return register


def orderings() -> list[Ordering]:
    """All orderings, weakest guarantee first."""
    return list(_orderings.values())


def get(name: str) -> Ordering:
    """The ordering of that name; ChoiceError, listing the known ones, if there is none."""
    return _orderings[known("all-reduce ordering", name, _orderings)]


def check(name: str, asked: str) -> Ordering:
    """As `get`, and ChoiceError, listing the orderings that do, when it does not meet the level asked for."""
    found = get(name)
    if not meets(found.guarantee, asked):
        enough = ", ".join(o.name for o in orderings() if meets(o.guarantee, asked))
        raise ChoiceError(
            f"all-reduce ordering {name!r} promises {found.guarantee!r}, less than the {asked!r} asked for: "
            f"{found.why}. These meet {asked!r}: {enough}"
        )
    return found


@ordering("native", guarantee="none", why="library, algorithm, rank count, length and placement decide")
def native(size: int) -> None:
    """The MPI library's own all-reduce of floating-point numbers."""


@ordering("arrival", guarantee="none", why="whichever contribution arrives first at rank 0 is added first")
def arrival(size: int) -> None:
    """Rank 0 adds contributions as they arrive, its own first, and broadcasts; logs the order for replay."""


@ordering("linear", guarantee="run", why="rank 0 adds in rank order; the rank count decides")
def linear(size: int) -> Schedule:
    """Gather at rank 0, sum in rank order, broadcast: the plainest fixed order, not a fast one."""
    return permuted(size, range(size))


def permuted(size: int, order: Sequence[int]) -> Schedule:
    """As `linear`, in a given order of the ranks: what `arrival` does once the messages have come.

    Raises ValueError when `order` is no permutation of the ranks.
    """
    order = tuple(int(rank) for rank in order)
    if sorted(order) != list(range(size)):
        raise ValueError(f"order {order} is no permutation of the ranks 0 ... {size - 1}")

    def program(rank: int) -> tuple[Round, ...]:
        if size == 1:
            return ()
        if rank == 0:
            others = range(1, size)
            return (
                Round(receives=tuple(Message(q, 0, q) for q in others), sums=(Sum(0, 0, order),)),
                Round(sends=tuple(Message(q, 0, 0) for q in others)),
            )
        return Round(sends=(Message(0, 0, 0),)), Round(receives=(Message(0, 0, 0),))

    return Schedule(size, 1, program)


@ordering(
    "recursive-doubling", guarantee="run", why="a fixed binary tree over the ranks; the rank count decides"
)
def recursive_doubling(size: int) -> Schedule:
    """Ranks exchange whole vectors with partners 1, 2, 4, ... away: fewest steps, for short vectors.

    Of a size that is no power of two, the first ranks add up in pairs before, and the odd one of each pair
    passes the total on after (Thakur, Rabenseifner and Gropp 2005). The lower ranks' sum always stands
    on the left, so that all ranks evaluate the same expression.
    """
    power = 1 << (size.bit_length() - 1)
    excess = size - power

    def program(rank: int) -> tuple[Round, ...]:
        paired = rank < 2 * excess
        idle = paired and rank % 2 == 0
        rounds = []
        if excess:
            if idle:
                rounds.append(Round(sends=(Message(rank + 1, 0, 0),)))
            elif paired:
                rounds.append(Round(receives=(Message(rank - 1, 0, 1),), sums=(Sum(0, 0, (1, 0)),)))
            else:
                rounds.append(Round())
        place = rank // 2 if paired else rank - excess
        distance = 1
        while distance < power:
            partner = place ^ distance
            peer = 2 * partner + 1 if partner < excess else partner + excess
            exchange = Round(
                sends=(Message(peer, 0, 0),),
                receives=(Message(peer, 0, 1),),
                sums=(Sum(0, 0, (1, 0) if partner < place else (0, 1)),),
            )
            rounds.append(Round() if idle else exchange)
            distance *= 2
        if excess:
            if idle:
                rounds.append(Round(receives=(Message(rank + 1, 0, 0),)))
            else:
                rounds.append(Round(sends=(Message(rank - 1, 0, 0),) if paired else ()))
        return tuple(rounds)

    return Schedule(size, 1, program)


@ordering(
    "ring",
    guarantee="run",
    why="each chunk is summed around the ring from a rank of its own; "
    "the rank count and the place in the vector decide",
)
def ring(size: int) -> Schedule:
    """Reduce-scatter, then allgather around a ring: least bytes, most steps (Patarasuk and Yuan 2009)."""

    def program(rank: int) -> tuple[Round, ...]:
        after, before = (rank + 1) % size, (rank - 1) % size
        reduce_scatter = [
            Round(
                sends=(Message(after, (rank - step) % size, 0),),
                receives=(Message(before, (before - step) % size, 1),),
                sums=(Sum((before - step) % size, 0, (1, 0)),),
            )
            for step in range(size - 1)
        ]
        allgather = [
            Round(
                sends=(Message(after, (rank + 1 - step) % size, 0),),
                receives=(Message(before, (rank - step) % size, 0),),
            )
            for step in range(size - 1)
        ]
        return tuple(reduce_scatter + allgather)

    return Schedule(size, size, program)


@ordering(
    "direct", guarantee="run", why="every element is added in rank order by one owner; the rank count decides"
)
def direct(size: int) -> Schedule:
    """Each rank gets its chunk from all, adds in rank order, sends the sum to all: least bytes, two steps.

    The same additions as `linear`, shared among the ranks.
    """

    def program(rank: int) -> tuple[Round, ...]:
        if size == 1:
            return ()
        # Own chunk of rank q goes to slot q + 1 or, behind the own rank, q: slot 0 is the own vector.
        slots = [q + 1 for q in range(rank)] + [0] + list(range(rank + 1, size))
        # Starting behind the own rank, so that not all ranks send to rank 0 first.
        others = [(rank + i) % size for i in range(1, size)]
        scatter = Round(
            sends=tuple(Message(q, q, 0) for q in others),
            receives=tuple(Message(q, rank, slots[q]) for q in others),
            sums=(Sum(rank, 0, tuple(slots)),),
        )
        gather = Round(
            sends=tuple(Message(q, rank, 0) for q in others),
            receives=tuple(Message(q, q, 0) for q in others),
        )
        return scatter, gather

    return Schedule(size, size, program)


@ordering(
    "fixed-point",
    guarantee="layout",
    why="contributions become integers in a common unit before they are added, and integers add exactly",
)
def fixed_point(size: int) -> None:
    """MAX of the exponents, then integer SUM of two words per float64, one per float32, by the library."""


@ordering(
    "exact",
    guarantee="exact",
    why="every bit of every contribution is kept in integers, and the total is rounded once",
)
def exact(size: int) -> None:
    """Integer SUM of superaccumulators by the MPI library: correctly rounded, for short vectors."""
