"""The orders in which numbers are added, by name: what each promises, and why its order is or is not fixed.

An order may be implemented by several backends and for several operations (sum, dot product, norm); all of them
make the same promise, which is stated here once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

from kernels.guarantees import known
from kernels.registry import variant


@dataclass(frozen=True)
class Order:
    """One way of adding up: its name, the level of its promise, and the reason in one line."""

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
            "cut among torch's threads and summed in vectors: repeats, but with other threads it may differ",
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
            "kahan", "run", "left to right, each error given back to the next element: the order still enters"
        ),
        Order(
            "neumaier",
            "run",
            "left to right with the errors added up apart: more digits, but the order still enters",
        ),
        Order(
            "dot2", "run", "left to right with the errors of products and sums apart: the order still enters"
        ),
        Order(
            "block-tree",
            "run",
            "blocks of 4096 in 64 lanes, an aligned binary tree over the blocks: the index fixes the order",
        ),
        Order(
            "omp-ordered", "run", "threads sum a part each, the parts are added in the order of the threads"
        ),
        Order(
            "omp-reduction",
            "none",
            "OpenMP leaves open in which order the threads' partial sums are combined",
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
            "a tree in each thread block, the last block adds them left to right, errors apart",
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
            "the largest exponent fixes the unit, each element is rounded to it by itself, integers are added",
        ),
        Order(
            "exact", "exact", "a superaccumulator holds every bit of every element; one rounding at the end"
        ),
    )
}


def in_order(
    name: str, *operations: str, backend: str, available: Callable[[], str | None] | None = None
) -> Callable[[Callable], Callable]:
    """Decorator: register a function as `operations` in the order of that name; see `kernels.registry.variant`.

    One that is a sum and a dot product takes `(x, y=None)`: it adds the elements of `x`, or its products with `y`.
    A TypeError or ValueError that the function raises will begin with the operation, the order and the backend, where
    it does not already.
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
    """`function`, whose errors begin with who raised them: the last of `who` where there is a `y`."""

    @wraps(function)
    def named(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError) as error:
            mine = who[len(args) > 1 or "y" in kwargs] if len(who) > 1 else who[0]
            if type(error) not in (TypeError, ValueError) or str(error).startswith(mine):
                raise  # a class of its own says enough, and may be made otherwise
            raise type(error)(f"{mine}{error}") from error

    return named
