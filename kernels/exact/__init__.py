"""Order-free accumulators: sums whose bits do not depend on the order of the additions.

Superaccumulator (Neal, arXiv 1505.05571): a sum is `WORDS` = 70 int64 words, 67 chunks of 32 bits that cover
every float64, and three counters of NaN, +inf and -inf. Adding words adds sums, so that ranks combine them by
integer SUM, in any order.
"""

import numpy as np

from kernels.exact.reference import WORDS, add, add_products, carry, round

__all__ = ["WORDS", "add", "add_products", "carry", "round", "zeros"]


def zeros(shape=()) -> np.ndarray:
    """Words of empty sums: int64 (*shape, WORDS)."""
    return np.zeros((*np.atleast_1d(np.asarray(shape, dtype=int)).tolist(), WORDS), dtype=np.int64)
