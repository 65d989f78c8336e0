"""The orders of a sparse matrix-vector product by name: the guarantee of each, and why its order is fixed or not."""

from __future__ import annotations

from collections.abc import Callable

from kernels.guarantees import known
from kernels.registry import variant
from kernels.sums.orders import Order

ORDERS = {
    order.name: order
    for order in (
        Order(
            "csr", "layout", "a row is one sum in 4 lanes: its entries alone fix the order, for any thread"
        ),
        Order(
            "merge",
            "run",
            "rows and entries are cut evenly into pieces, and those of a row added in order: their number changes bits",
        ),
        Order(
            "coo-atomic",
            "none",
            "one atomic addition per entry, in the order in which the hardware serves them",
        ),
        Order(
            "coo-emulated",
            "none",
            "as coo-atomic, in an order drawn from a seed, which differs from call to call",
        ),
        Order("scipy", "run", "one thread, each row left to right"),
    )
}


def in_order(
    name: str, *, backend: str, available: Callable[[], str | None] | None = None
) -> Callable[[Callable], Callable]:
    """Decorator that registers a planner as `spmv` in that order; see `kernels.registry.variant`."""
    order = ORDERS[known("order of additions", name, ORDERS)]
    return variant(
        "spmv", order.name, backend=backend, guarantee=order.guarantee, why=order.why, available=available
    )
