"""Shapes of operands, and what is said of those that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.contract.operands import pair


def matrices(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """a (..., rows, depth) and b (..., depth, columns) with equal leading dims, and the shape of their product.

    Leading dims are broadcast as NumPy does, by strides of 0. Raises TypeError and ValueError for what does not fit.
    """
    x, y = pair("matmul", a, b)
    if x.ndim < 2 or y.ndim < 2:
        raise ValueError(
            f"matmul: a has shape {x.shape} and b {y.shape}: (..., rows, depth) and (..., depth, columns) are expected"
        )
    if x.shape[-1] != y.shape[-2]:
        raise ValueError(
            f"matmul: the last dim of a {x.shape} and the last but one of b {y.shape} must be equal"
        )
    leading = x.shape[:-2]
    if leading != y.shape[:-2]:
        try:
            leading = np.broadcast_shapes(leading, y.shape[:-2])
        except ValueError:
            raise ValueError(
                f"matmul: the leading dims of a {x.shape} and b {y.shape} cannot be broadcast"
            ) from None
        x = np.broadcast_to(x, (*leading, *x.shape[-2:]))
        y = np.broadcast_to(y, (*leading, *y.shape[-2:]))
    return x, y, (*leading, x.shape[-2], y.shape[-1])
