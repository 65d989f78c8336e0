"""Numbers rounded to fewer bits, so that a checkpoint takes less room; the run goes on from what it kept."""

import numpy as np


def rounded(x: np.ndarray, bits: int) -> np.ndarray:
    """`x` with `bits` bits of mantissa behind the leading one, to nearest, ties to even; other types than float64 and
    float32, and numbers that would overflow, as they are."""
    if x.dtype not in (np.float64, np.float32) or bits >= np.finfo(x.dtype).nmant:
        return x
    mantissa, exponent = np.frexp(x)
    with np.errstate(over="ignore"):  # what would overflow stays as it is
        kept = np.ldexp(np.rint(np.ldexp(mantissa, bits + 1)), exponent - (bits + 1))
    return np.where(np.isfinite(kept), kept, x)
