"""Exchange of whole vectors among k partners at growing distance."""

from __future__ import annotations

from kernels.allreduce.ordering import ordering
from kernels.allreduce.schedule import TOTAL, Message, Round, Schedule, Sum
from kernels.allreduce.schedules import folding


@ordering(
    "recursive-doubling", guarantee="run", why="a fixed binary tree over the ranks; the rank count decides"
)
def recursive_doubling(size: int) -> Schedule:
    """Ranks exchange whole vectors with partners 1, 2, 4, ... away: fewest steps, for short vectors.

    If the size is no power of two, the first ranks first add in pairs, and at the end the odd rank of each pair passes
    the total back (Thakur, Rabenseifner and Gropp 2005). The lower ranks' sum always stands on the left, so that all
    ranks evaluate the same expression.
    """
    return _exchange(size, folding.choose(size, 2))


@ordering(
    "recursive-multiplying",
    guarantee="run",
    why="a fixed tree of k branches over the ranks; the rank count, k and the fold decide",
    choices={"fold": folding.FOLDS},
)
def recursive_multiplying(size: int, *, k: int = 4, fold: str = "wrap") -> Schedule:
    """Ranks exchange whole vectors in groups of k, of ranks 1, k, k^2, ... apart: log_k p steps.

    Each group is added from its first rank to its last. `fold` assigns the surplus ranks if the size is no power of k:
    with `wrap` rank r goes to r modulo the power (MPICH's recursive_multiplying), with `neighbours` to the last of a
    set of k ranks (MPICH's recexch). k = 2 with neighbours is `recursive-doubling`.
    """
    return _exchange(size, folding.choose(size, k, fold))


def _exchange(size: int, fold: folding.Fold) -> Schedule:
    k = fold.k

    def inner(place: int, mine: int) -> list[Round]:
        rounds = []
        for distance in (k**step for step in range(fold.digits)):
            digit = place // distance % k
            peers = [fold.ranks[place + (i - digit) * distance] for i in range(k) if i != digit]
            others = list(range(1, k))  # slots of the peers' vectors
            rounds.append(
                Round(
                    sends=tuple(Message(peer, 0, mine) for peer in peers),
                    receives=tuple(Message(peer, 0, 1 + i) for i, peer in enumerate(peers)),
                    sums=(Sum(0, TOTAL, (*others[:digit], mine, *others[digit:])),),
                )
            )
            mine = TOTAL
        return rounds

    return folding.folded(size, fold, inner)
