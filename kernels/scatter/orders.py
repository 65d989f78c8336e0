"""The orders of a scatter-add by name: the guarantee of each, and why its order is fixed or not."""

from __future__ import annotations

from collections.abc import Callable

from kernels.guarantees import known
from kernels.registry import variant
from kernels.sums.orders import Order

ORDERS = {
    order.name: order
    for order in (
        Order("reference", "run", "each bin from +0.0 by ascending place in the input"),
        Order("numpy", "run", "one thread, by ascending place in the input"),
        Order("torch", "run", "index_add_ adds in one thread, by ascending place in the input"),
        Order(
            "atomic",
            "none",
            "one atomic addition per element, in the order in which the hardware serves them",
        ),
        Order(
            "sorted",
            "run",
            "elements are sorted stably by bin and each bin is added by ascending place, for any number of threads",
        ),
        Order("exact", "exact", "integers hold every bit of every element; one rounding per bin at the end"),
    )
}


def in_order(
    name: str, *, backend: str, available: Callable[[], str | None] | None = None
) -> Callable[[Callable], Callable]:
    """Decorator that registers a function as `scatter_add` in that order; see `kernels.registry.variant`."""
    order = ORDERS[known("order of additions", name, ORDERS)]
    return variant(
        "scatter_add",
        order.name,
        backend=backend,
        guarantee=order.guarantee,
        why=order.why,
        available=available,
    )
