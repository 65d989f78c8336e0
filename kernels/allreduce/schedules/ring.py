"""Around a ring of ranks: reduce-scatter, then allgather."""

from __future__ import annotations

from kernels.allreduce.catalog import ordering
from kernels.allreduce.schedule import OWN, TOTAL, Message, Round, Schedule, Sum


@ordering(
    "ring",
    guarantee="run",
    why="each chunk is summed around the ring from a rank of its own; "
    "the rank count and the place in the vector decide",
)
def ring(size: int) -> Schedule:
    """Reduce-scatter, then allgather around a ring: least bytes, most steps (Patarasuk and Yuan 2009)."""

    def program(rank: int) -> tuple[Round, ...]:
        if size == 1:
            return (Round(sums=(Sum(0, TOTAL, (OWN,)),)),)
        after, before = (rank + 1) % size, (rank - 1) % size
        reduce_scatter = [
            Round(
                sends=(Message(after, (rank - step) % size, TOTAL if step else OWN),),
                receives=(Message(before, (before - step) % size, 1),),
                sums=(Sum((before - step) % size, TOTAL, (1, OWN)),),
            )
            for step in range(size - 1)
        ]
        allgather = [
            Round(
                sends=(Message(after, (rank + 1 - step) % size, TOTAL),),
                receives=(Message(before, (rank - step) % size, TOTAL),),
            )
            for step in range(size - 1)
        ]
        return tuple(reduce_scatter + allgather)

    return Schedule(size, size, program)
