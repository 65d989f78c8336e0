"""Order-free accumulators: sums whose bits do not depend on the order of the additions.

Superaccumulator: every sum correctly rounded, 560 bytes each. Limbs: sums of float32 in as few words as the range of
all their terms needs, mostly 8 or 16 bytes, correctly rounded as well. Both combine by integer SUM, in any order.
`kernels.exact.reference` has the superaccumulator in plain NumPy.
"""

from kernels.exact.limbs import Limbs, range_of
from kernels.exact.superaccumulator import WORDS, add, add_many_products, add_products, carry, round, zeros

__all__ = [
    "WORDS",
    "Limbs",
    "add",
    "add_many_products",
    "add_products",
    "carry",
    "range_of",
    "round",
    "zeros",
]
