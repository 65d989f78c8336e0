"""The orderings as pure functions of the number of ranks; importing this package registers all of them."""

from kernels.allreduce.schedules import direct, doubling, in_order, ring, without

__all__ = ["direct", "doubling", "in_order", "ring", "without"]
