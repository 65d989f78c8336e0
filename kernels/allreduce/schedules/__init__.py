"""The orderings as pure functions of the number of ranks; importing this package registers all of them."""

from kernels.allreduce.schedules import (
    binomial,
    block_tree,
    direct,
    double_tree,
    doubling,
    in_order,
    k_nomial,
    rabenseifner,
    ring,
    trees,
    two_level,
    unscheduled,
)

__all__ = [
    "binomial",
    "block_tree",
    "direct",
    "double_tree",
    "doubling",
    "in_order",
    "k_nomial",
    "rabenseifner",
    "ring",
    "trees",
    "two_level",
    "unscheduled",
]
