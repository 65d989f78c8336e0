"""Powers of two that bring a matrix or a right side near 1, so that squares in a solver neither over- nor underflow.

Scaling does not round: the solutions of 2^k A x = b and of A x = 2^k b have the bits of the solution of A x = b, except
for exponents.
"""

import numpy as np

NEAR = {"float64": 64, "float32": 32}  # largest exponent of the largest number without scaling
LEAST, MOST = -1022, 900  # limits of the exponents of the least and the largest number after scaling


def shift_of(comm, values: np.ndarray, dtype: str) -> int:
    """The s for which `values` (float64) of all ranks times 2^s are near 1, for vectors of `dtype`; 0 if they are.

    The largest moves into [1, 2), unless the least nonzero number would become subnormal. Collective.
    """
    magnitudes = np.abs(values)
    own = magnitudes.max(initial=0.0), magnitudes.min(initial=np.inf, where=magnitudes > 0)
    largest, least = zip(*comm.allgather(own), strict=True)
    return _shift(float(max(largest)), float(min(least)), NEAR[dtype])


def scaled(values: np.ndarray, shift: int) -> np.ndarray:
    """`values` times 2^shift, in float64; unchanged for 0."""
    if not shift:
        return values
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(np.asarray(values, np.float64), shift)


def _shift(largest: float, least: float, near: int) -> int:
    if not 0.0 < largest < np.inf:
        return 0
    high, low = int(np.frexp(largest)[1]) - 1, int(np.frexp(least)[1]) - 1
    if abs(high) <= near:
        return 0
    return min(max(-high, LEAST - low), MOST - high) if high > 0 else -high
