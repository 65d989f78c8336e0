"""Rounds numbers to fewer bits, so that checkpoints need less space; the run continues from the rounded numbers."""

import numpy as np


def rounded(x: np.ndarray, bits: int) -> np.ndarray:
    """`x` rounded to `bits` bits of mantissa behind the leading one, to nearest, ties to even. Leaves types other than
    float64 and float32 as they are, and numbers that would overflow."""
    if x.dtype not in (np.float64, np.float32) or bits >= np.finfo(x.dtype).nmant:
        return x
    mantissa, exponent = np.frexp(x)
    with np.errstate(over="ignore"):
        kept = np.ldexp(np.rint(np.ldexp(mantissa, bits + 1)), exponent - (bits + 1))
    return np.where(np.isfinite(kept), kept, x)
