"""Order-free accumulators: sums whose bits do not depend on the order of the additions.

Superaccumulator: correctly rounded sums in 560 bytes each. Limbs: correctly rounded sums of float32 in the fewest words
for the range of all terms, mostly 8 or 16 bytes. Both combine by integer SUM, in any order. `kernels.exact.reference`
implements the superaccumulator in plain NumPy.
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
