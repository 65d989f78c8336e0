"""`properties` on orderings that do not keep their promises; run by tests/mpi/test_allreduce_properties_mpi.py."""

import sys

from kernels.allreduce.ordering import ordering
from kernels.allreduce.schedule import OWN, TOTAL, Message, Round, Schedule, Sum
from kernels.allreduce.schedules.ring import ring
from kernels.commands.allreduce import main


@ordering("boastful", guarantee="layout", why="it is a ring, and promises too much")
def boastful(size: int) -> Schedule:
    """A ring."""
    return ring(size)


@ordering("egocentric", guarantee="run", why="every rank adds its own contribution first")
def egocentric(size: int) -> Schedule:
    """Everybody sends to everybody, and adds for itself."""

    def program(rank: int) -> tuple[Round, ...]:
        others = [q for q in range(size) if q != rank]
        return (
            Round(
                sends=tuple(Message(q, 0, OWN) for q in others),
                receives=tuple(Message(q, 0, q + 1) for q in others),
                sums=(Sum(0, TOTAL, (OWN, *(q + 1 for q in others))),),
            ),
        )

    return Schedule(size, 1, program)


@ordering("arrival", guarantee="run", why="nothing: it adds whatever comes first")
def arrival(size: int) -> None:
    """The one of that name, promising what it cannot keep."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
