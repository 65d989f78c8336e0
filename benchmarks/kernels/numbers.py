"""Random terms from several distributions, on which the time of order-free sums depends."""

import ml_dtypes
import numpy as np

DISTRIBUTIONS = ("uniform", "normal", "wide", "sorted", "cancelling", "subnormal")


def numbers(distribution: str, n: int, dtype, rng: np.random.Generator) -> np.ndarray:
    """n numbers of `dtype`, clipped to its range.

    uniform: in [0, 1). normal: standard. wide: normal numbers times e**u, u uniform in (-20, 20), over 58 binades.
    sorted: normal, ascending. cancelling: wide, every number with its negative (except the last of an odd n).
    subnormal: normal numbers times the smallest normal number of the type / 64.
    """
    x = rng.random(n) if distribution == "uniform" else rng.standard_normal(n)
    limits = ml_dtypes.finfo(dtype)
    if distribution in ("wide", "cancelling"):
        x *= np.exp(rng.uniform(-20, 20, n))
    if distribution == "sorted":
        x.sort()
    if distribution == "cancelling":
        x[n // 2 : n // 2 * 2] = -x[: n // 2]
        rng.shuffle(x)
    if distribution == "subnormal":
        x *= float(limits.smallest_normal) / 64
    return np.clip(x, float(limits.min), float(limits.max)).astype(dtype)
