"""Wraps variants of any backend as functions of a host array, for order discovery and comparisons."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernels.guarantees import ChoiceError
from kernels.registry import Variant


def black_box(variant: Variant, **parameters) -> Callable[[np.ndarray], float]:
    """A variant of a sum or a dot product as a function of a NumPy array (n,) that returns a number.

    The other factor of a dot product is ones. Raises ChoiceError for other operations: a norm's squares cannot cancel,
    and order discovery needs terms that do.
    """
    if variant.operation not in ("sum", "dot"):
        raise ChoiceError(
            f"{variant.operation} is not a sum of signed terms: choose the operation sum or dot"
        )

    def f(x: np.ndarray) -> float:
        factors = [x] if variant.operation == "sum" else [x, np.ones_like(x)]
        if variant.backend != "cupy":
            return variant(*factors, **parameters)
        import cupy

        if x.dtype.itemsize > 2:
            return variant(*map(cupy.asarray, factors), **parameters)
        as_bits = (cupy.asarray(factor.view(np.uint16)) for factor in factors)
        return variant(*as_bits, **parameters, dtype=x.dtype.name)

    return f
