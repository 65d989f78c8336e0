"""The variants of products by name: the guarantee of each, and why its bits depend on cuts or do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernels.guarantees import known
from kernels.registry import variant


@dataclass(frozen=True)
class Promise:
    """A variant's level and its reason in one line."""

    guarantee: str
    why: str


PROMISES = {
    "reference": Promise(
        "layout", "the definition: every element a chain of exact multiply-adds, each rounded once"
    ),
    "own": Promise(
        "layout",
        "every element is a chain of fused multiply-adds in pieces of 256: its contracted length alone fixes the order",
    ),
    "torch": Promise(
        "run",
        "a library chooses its kernels, and with them the order of sums, by all sizes and by its threads",
    ),
    "torch-blocks": Promise(
        "layout",
        "torch multiplies blocks of one shape, padded with zeros, by one thread; holds for cuts between blocks",
    ),
}


def promised(
    operation: str,
    name: str,
    *,
    backend: str,
    why: str | None = None,
    available: Callable[[], str | None] | None = None,
) -> Callable[[Callable], Callable]:
    """Decorator that registers a function as the variant of that name; `why` replaces the reason in PROMISES. See
    `kernels.registry.variant`."""
    promise = PROMISES[known("variant of a product", name, PROMISES)]
    return variant(
        operation,
        name,
        backend=backend,
        guarantee=promise.guarantee,
        why=why or promise.why,
        available=available,
    )
