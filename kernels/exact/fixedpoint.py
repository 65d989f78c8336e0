"""Fixed point per tensor: elements as int64 in units of a common power of two, summed as integers.

Cheaper than the superaccumulator for arrays (8 bytes for a float32, 16 for a float64) and order-free as well,
but exact only for elements not too far below the largest. Three steps: all ranks agree on the exponent by
MAX, add their words by integer SUM, and decode. Elements depend on one another through the exponent alone.

Headroom is 20 bits whatever the number of contributions, so that it does not enter the bits of the result.
"""

from __future__ import annotations

import numpy as np

from kernels import _native
from kernels.exact import reference
from kernels.exact.reference import EMPTY, HEADROOM, NONFINITE

MAX_CONTRIBUTIONS = 1 << HEADROOM
LIMBS = {np.dtype(np.float32): 1, np.dtype(np.float64): 2}


def fixed_exponent(x: np.ndarray, n: int | None = None) -> np.int32:
    """The least e with max|x| < 2**e, for `x` float32 or float64 (k, *shape); to be agreed on by MAX.

    EMPTY (-1074) when all is zero or k is 0, which any other exponent outranks; NONFINITE (2**20) when there
    is a NaN or an infinity, which outranks all. `n`: contributions of all ranks together, k if not given.
    Raises ValueError when that is above MAX_CONTRIBUTIONS (2**20): beyond it the words could overflow.
    """
    x = _floats(x)
    _fits(len(x) if n is None else n)
    return np.int32(_native.fixed_exponent(x))


def fixed_encode(x: np.ndarray, exponent: int, out: np.ndarray | None = None) -> np.ndarray:
    """`x` (k, *shape) in fixed point, summed over its first axis: int64 (limbs, *shape).

    float32 has one limb, in units of 2**(exponent - 42), float64 a second, in units of 2**(exponent - 84).
    Each element is rounded once, to the nearest multiple of the last unit (ties to even): it is off by at
    most 2**(exponent - 43) or 2**(exponent - 85), and not at all where it has no bits below that unit, as all
    float32 from 2**(exponent - 19) in magnitude and all float64 from 2**(exponent - 32). With `exponent`
    NONFINITE the words count NaN, +inf and -inf instead. `out`: C-contiguous int64 (limbs, *shape) to be filled and
    returned. Raises ValueError for more than 2**20 contributions, for elements beyond the exponent and for an `out`
    that does not fit.
    """
    x, exponent = _floats(x), int(exponent)
    _fits(len(x))
    limbs = LIMBS[x.dtype]
    if out is None:
        out = np.empty((limbs, *x.shape[1:]), dtype=np.int64)
    if out.shape != (limbs, *x.shape[1:]) or out.dtype != np.int64 or not out.flags.c_contiguous:
        raise ValueError(
            f"out is {out.dtype} {out.shape}: expected C-contiguous int64 {(limbs, *x.shape[1:])}"
        )
    if exponent >= NONFINITE:
        out[...] = reference.fixed_encode(x, exponent, limbs)
        return out
    if not EMPTY <= exponent <= 1024:
        raise ValueError(
            f"exponent {exponent} is not one of fixed_exponent: {EMPTY} ... 1024, or {NONFINITE}"
        )
    out.fill(0)
    if _native.fixed_encode(x, exponent, out):
        raise ValueError(
            f"an element is NaN or not below 2**{exponent}: "
            "agree on the exponent by MAX over the fixed_exponent of all contributions"
        )
    return out


def fixed_decode(words: np.ndarray, exponent: int, dtype, out: np.ndarray | None = None) -> np.ndarray:
    """The sums in `words` (limbs, *shape) of fixed_encode, rounded once, to nearest even: `dtype` (*shape,).

    For n contributions in all, the sum before this rounding is off by at most n * 2**(exponent - 43)
    (float32) or n * 2**(exponent - 85) (float64). Zero is +0.0. With `exponent` NONFINITE, an element is an
    infinity if infinities of that one sign and no NaN were added to it, and NaN otherwise: the finite ones
    too, for their exponent is not known. Raises ValueError when limbs and dtype do not fit.
    """
    dtype, exponent = np.dtype(dtype), int(exponent)
    if len(words) != LIMBS.get(dtype):
        raise ValueError(f"{len(words)} limbs do not decode to {dtype}: one limb is float32, two are float64")
    if out is None:
        out = np.empty(words.shape[1:], dtype=dtype)
    if out.shape != words.shape[1:] or out.dtype != dtype or not out.flags.c_contiguous:
        raise ValueError(f"out is {out.dtype} {out.shape}: expected C-contiguous {dtype} {words.shape[1:]}")
    if exponent >= NONFINITE:
        out[...] = reference.fixed_decode(words, exponent, dtype)
    else:
        _native.fixed_decode(np.ascontiguousarray(words), exponent, out)
    return out


def _floats(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x)
    if x.dtype not in LIMBS:
        raise TypeError(f"no fixed-point form of {x.dtype}: convert it to float32 or float64")
    return x if x.flags.c_contiguous else np.ascontiguousarray(x)


def _fits(n: int) -> None:
    if n > MAX_CONTRIBUTIONS:
        raise ValueError(
            f"{n} contributions overflow the words: at most 2**{HEADROOM} over all ranks; add in parts"
        )
