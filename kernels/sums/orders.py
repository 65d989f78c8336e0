"""The orders of additions by name: the guarantee of each, and why its order is fixed or not.

Several backends and operations (sum, dot product, norm) may implement an order; all have the guarantee stated here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

from kernels.guarantees import known
from kernels.registry import variant


@dataclass(frozen=True)
class Order:
    """One way of adding: its name, its guarantee, and the reason in one line."""

    name: str
    guarantee: str
    why: str


ORDERS = {
    order.name: order
    for order in (
        Order("reference", "run", "left to right, from +0.0"),
        Order(
            "numpy",
            "run",
            "an order that belongs to NumPy and its version; of dot products, to its BLAS and its threads",
        ),
        Order(
            "torch",
            "run",
            "divided among torch's threads and summed in vectors: repeats, but another number of threads may differ",
        ),
        Order(
            "lanes",
            "run",
            "64 lanes and a binary tree over them: the length fixes the order, a partition changes it",
        ),
        Order(
            "pairwise",
            "run",
            "halves down to runs of 1024: the length fixes the order, a partition changes it",
        ),
        Order(
            "kahan",
            "run",
            "left to right, each error subtracted from the next element: the order still matters",
        ),
        Order(
            "neumaier",
            "run",
            "left to right with a separate sum of the errors: more digits, but the order still matters",
        ),
        Order("dot2", "run", "left to right with a separate sum of all errors: the order still matters"),
        Order(
            "block-tree",
            "run",
            "blocks of 4096 in 64 lanes, an aligned binary tree over the blocks: the index fixes the order",
        ),
        Order(
            "omp-ordered", "run", "each thread sums a part, the parts are added in the order of the threads"
        ),
        Order(
            "omp-reduction",
            "none",
            "OpenMP does not specify the order in which the threads' partial sums are combined",
        ),
        Order(
            "omp-atomic", "none", "one atomic addition per element, in the order in which the threads arrive"
        ),
        Order(
            "ao", "none", "one atomic addition per element, in the order in which the hardware serves them"
        ),
        Order("spa", "none", "a tree in each thread block, then one atomic addition per block as it ends"),
        Order(
            "sptr",
            "run",
            "a tree in each thread block, the last block to end adds the partial sums by a tree",
        ),
        Order(
            "sprg",
            "run",
            "a tree in each thread block, the last block to end adds them in the order of blocks",
        ),
        Order(
            "tprc",
            "run",
            "a tree in each thread block, the host adds the partial sums in the order of blocks",
        ),
        Order(
            "sp-pairwise",
            "run",
            "a tree in each thread block, the last block adds the partial sums by an aligned binary tree",
        ),
        Order(
            "sp-neumaier",
            "run",
            "a tree in each thread block, the last block adds them left to right with a separate sum of the errors",
        ),
        Order("cu", "run", "CUB's reduction, called by CuPy: documented to repeat on one device"),
        Order(
            "binned",
            "layout",
            "elements are cut at fixed multiples of 40 bits below the largest, the pieces added as integers",
        ),
        Order(
            "fixed-point",
            "layout",
            "the largest exponent fixes the unit, each element alone is rounded to it, integers are added",
        ),
        Order(
            "exact", "exact", "a superaccumulator holds every bit of every element; one rounding at the end"
        ),
    )
}


def in_order(
    name: str, *operations: str, backend: str, available: Callable[[], str | None] | None = None
) -> Callable[[Callable], Callable]:
    """Decorator that registers a function as `operations` in that order; see `kernels.registry.variant`.

    A function for both sum and dot product takes `(x, y=None)`: it adds the elements of `x`, or its products with `y`.
    The decorator prefixes the messages of TypeError and ValueError with operation, order and backend.
    """
    order = ORDERS[known("order of additions", name, ORDERS)]

    def register(function: Callable) -> Callable:
        named = _named(function, [f"{operation} {name!r} ({backend}): " for operation in operations])
        for operation in operations:
            named = variant(
                operation,
                name,
                backend=backend,
                guarantee=order.guarantee,
                why=order.why,
                available=available,
            )(named)
        return named

    return register


def _named(function: Callable, who: list[str]) -> Callable:
    """`function`, with a prefix of `who` in its errors: the last of `who` if there is a `y`."""

    @wraps(function)
    def named(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError) as error:
            mine = who[len(args) > 1 or "y" in kwargs] if len(who) > 1 else who[0]
            if type(error) not in (TypeError, ValueError) or str(error).startswith(mine):
                raise  # a subclass has its own message and may need other arguments
            raise type(error)(f"{mine}{error}") from error

    return named
