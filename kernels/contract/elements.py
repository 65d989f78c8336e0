"""Functions of one element by fixed operations: additions, products and divisions, each correctly rounded.

    y = element("sigmoid", x)

No function comes from a library, so the bits of an element depend on it alone: neither on its place, nor on the
processor. kernels/native/static_kernels.hpp defines them; the schedules of `kernels.inference` use the same ones.
"""

from __future__ import annotations

import numpy as np

from kernels import _native
from kernels.contract.native import level_number
from kernels.contract.operands import Array, array_of, like
from kernels.guarantees import known

ELEMENTS: tuple[str, ...] = tuple(_native.STATIC["functions"])


def element(name: str, x: Array, *, factor: Array | None = None, level: str | None = None) -> Array:
    """The function `name` of ELEMENTS of each element of x, float32 of any shape: a new array of the kind of x.

    `factor`: of the shape of x, by which the results are multiplied. `gelu_slope` is the derivative of `gelu`,
    x (1 + erf(x / sqrt 2)) / 2. `level`: an instruction set of `kernels.contract.native.LEVELS`, None for the best one
    here; it changes no bit. Raises TypeError for another type, ValueError for another shape of the factor, and
    ChoiceError for an unknown name.
    """
    name = known("function of elements", name, ELEMENTS)
    given = [_float32(name, x, "x")]
    if factor is not None:
        given.append(_float32(name, factor, "factor"))
        if given[1].shape != given[0].shape:
            raise ValueError(f"{name}: factor is {given[1].shape}, and x is {given[0].shape}")
    found = np.empty(given[0].shape, np.float32)
    _native.element(name, given, found, level_number(level))
    return like(found, x)


def _float32(name: str, x: Array, what: str) -> np.ndarray:
    array = array_of(x, name, what)
    if array.dtype != np.float32:
        raise TypeError(f"{name}: {what} is of {array.dtype}: convert it to float32")
    return np.ascontiguousarray(array).reshape(array.shape)
