"""A binomial tree: partial sums travel to rank 0 and the total back, over growing distances."""

from __future__ import annotations

from kernels.allreduce.ordering import ordering
from kernels.allreduce.schedule import OWN, TOTAL, Message, Round, Schedule, Sum


@ordering("binomial", guarantee="run", why="a fixed binary tree over the ranks; the rank count decides")
def binomial(size: int) -> Schedule:
    """Reduce to rank 0 along a binomial tree, broadcast along the same: few messages, whole vectors.

    For d = 1, 2, 4, ... the ranks that are multiples of 2d add the sum of rank + d (Thakur, Rabenseifner and
    Gropp 2005): the aligned binary tree over the ranks.
    """
    distances = [1 << step for step in range((size - 1).bit_length())]

    def program(rank: int) -> tuple[Round, ...]:
        if size == 1:
            return (Round(sums=(Sum(0, TOTAL, (OWN,)),)),)
        up, down, mine = [], [], OWN
        for d in distances:
            if rank % (2 * d) == d:
                up.append(Round(sends=(Message(rank - d, 0, mine),)))
                down.append(Round(receives=(Message(rank - d, 0, TOTAL),)))
            elif rank % (2 * d) == 0 and rank + d < size:
                up.append(Round(receives=(Message(rank + d, 0, 1),), sums=(Sum(0, TOTAL, (mine, 1)),)))
                down.append(Round(sends=(Message(rank + d, 0, TOTAL),)))
                mine = TOTAL
            else:
                up.append(Round())
                down.append(Round())
        return tuple(up + down[::-1])

    return Schedule(size, 1, program)
