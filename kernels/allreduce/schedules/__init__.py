"""The orderings as pure functions of the number of ranks; importing this package registers all of them."""

from kernels.allreduce.schedules import (
    binomial,
    block_tree,
    direct,
    doubling,
    in_order,
    k_nomial,
    rabenseifner,
    ring,
    without,
)

__all__ = [
    "binomial",
    "block_tree",
    "direct",
    "doubling",
    "in_order",
    "k_nomial",
    "rabenseifner",
    "ring",
    "without",
]
