"""Exchange of whole vectors with partners at growing distance."""

from __future__ import annotations

from kernels.allreduce.catalog import ordering
from kernels.allreduce.schedule import OWN, TOTAL, Message, Round, Schedule, Sum


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
        if size == 1:
            return (Round(sums=(Sum(0, TOTAL, (OWN,)),)),)
        paired = rank < 2 * excess
        idle = paired and rank % 2 == 0
        rounds, mine = [], OWN
        if excess:
            if idle:
                rounds.append(Round(sends=(Message(rank + 1, 0, OWN),)))
            elif paired:
                rounds.append(Round(receives=(Message(rank - 1, 0, 1),), sums=(Sum(0, TOTAL, (1, OWN)),)))
                mine = TOTAL
            else:
                rounds.append(Round())
        place = rank // 2 if paired else rank - excess
        distance = 1
        while distance < power:
            partner = place ^ distance
            peer = 2 * partner + 1 if partner < excess else partner + excess
            exchange = Round(
                sends=(Message(peer, 0, mine),),
                receives=(Message(peer, 0, 1),),
                sums=(Sum(0, TOTAL, (1, mine) if partner < place else (mine, 1)),),
            )
            rounds.append(Round() if idle else exchange)
            mine = TOTAL
            distance *= 2
        if excess:
            if idle:
                rounds.append(Round(receives=(Message(rank + 1, 0, TOTAL),)))
            else:
                rounds.append(Round(sends=(Message(rank - 1, 0, TOTAL),) if paired else ()))
        return tuple(rounds)

    return Schedule(size, 1, program)
