"""Norms: the square root of the dot product of a vector with itself, in every order of dot products.

Where the squares leave the range of the accumulator, the vector is scaled first by a power of two, which is exact.
"""

from __future__ import annotations

import inspect
import math

import numpy as np

from kernels.registry import Variant, variants
from kernels.sums.elements import ACCUMULATORS
from kernels.sums.orders import in_order


def register() -> None:
    """Registers a norm for every registered dot product, with the same name, backend and guarantee."""
    for dot in variants("dot"):
        in_order(dot.name, "norm", backend=dot.backend, available=dot.available)(norm_by(dot))


def norm_by(dot: Variant):
    """The norm that computes its sum of squares by the variant `dot`, with the same parameters.

    The dot product r = (x, x) of n elements is used directly where n tiny/eps <= r < infinity (tiny and eps of the
    accumulator): the squares' loss by underflow is then below eps**2 r / 2. Otherwise x, in the type of its
    accumulator, is scaled by a power of two, so that the largest square neither overflows nor underflows, and the dot
    product is computed again. For NaN the result is the root of the dot product's NaN, even beside infinities, so the
    norm keeps the guarantee of the dot product. Infinities give infinity, an empty array 0.0.

    The square root is correctly rounded. If the sum of squares is correctly rounded too (`exact`, within the limits of
    its dot product), the norm is less than 1 unit in the last place from the true norm.
    """
    function = inspect.unwrap(dot.function)  # so that messages name only the norm

    def norm(x, *args, **kwargs) -> np.floating:
        square = function(x, x, *args, **kwargs)
        number = np.finfo(square.dtype)
        if len(x) * (number.tiny / number.eps) <= square < np.inf:
            return np.sqrt(square)
        values = _numbers(x, kwargs.get("dtype", ""))
        largest = abs(values).max().tolist()
        if math.isnan(largest):  # which of several NaNs is the largest depends on their order
            return np.sqrt(square)
        if largest == 0 or not math.isfinite(largest):
            return square.dtype.type(largest)
        # The largest becomes at least 2**(target - 1), the sum of n squares less than 2**(maxexp - 2).
        target = (number.maxexp - 2 - len(x).bit_length()) // 2
        shift = target - math.frexp(largest)[1]
        kwargs.pop("dtype", None)
        for part in (shift // 2, shift - shift // 2):  # one factor could overflow
            values = values * square.dtype.type(2.0**part)
        with np.errstate(all="ignore"):
            return np.ldexp(np.sqrt(function(values, values, *args, **kwargs)), -shift)

    signature = inspect.signature(function)
    norm.__signature__ = signature.replace(  # type: ignore[attr-defined]  # an attribute that PEP 362 allows
        parameters=[p for p in signature.parameters.values() if p.name != "y"]
    )
    norm.__doc__ = (
        f"The square root of `{dot.name}`'s (x, x); x is scaled first where its squares leave the range."
    )
    return norm


def _numbers(x, dtype: str):
    """`x` in the type of its accumulator, on its device; on a GPU float16 and bfloat16 may be given as bits."""
    x = x if hasattr(x, "dtype") else np.asarray(x)
    if x.dtype.name != "uint16":
        return x.astype(ACCUMULATORS[x.dtype.name])
    if dtype == "float16":
        return x.view(np.float16).astype(np.float32)
    return (x.astype(np.uint32) << np.uint32(16)).view(np.float32)
