"""Order-free accumulators: sums whose bits do not depend on the order of the additions.

Superaccumulator: every sum correctly rounded, 560 bytes each. Fixed point: one exponent for a whole tensor,
8 or 16 bytes per element. Both combine by integer SUM, in any order. `kernels.exact.reference` has the same
in plain NumPy.
"""

from kernels.exact.fixedpoint import (
    EMPTY,
    LIMBS,
    MAX_CONTRIBUTIONS,
    NONFINITE,
    fixed_decode,
    fixed_encode,
    fixed_exponent,
)
from kernels.exact.superaccumulator import WORDS, add, add_many_products, add_products, carry, round, zeros

__all__ = [
    "EMPTY",
    "LIMBS",
    "MAX_CONTRIBUTIONS",
    "NONFINITE",
    "WORDS",
    "add",
    "add_many_products",
    "add_products",
    "carry",
    "fixed_decode",
    "fixed_encode",
    "fixed_exponent",
    "round",
    "zeros",
]
