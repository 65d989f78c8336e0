"""Products whose bits depend on the contracted length alone: not on how the other dims are cut, nor on threads.

    c = matmul(a, b)                                   # (..., rows, depth), (..., depth, columns)
    c = matmul(a, b, out, variant="torch", threads=2)
    c = get("matmul", "own")(a, b, out=None, threads=1)    # the same by kernels.registry

Operands are arrays of NumPy or tensors of torch on the CPU, float32 or float64, all of one type, strided as they like:
a transposed operand is a view and never copied. The result is `out`, which may have any strides, or a new array of the
kind of the first operand. Tensors are taken as numbers: nothing is recorded for a gradient.

**The chain.** An element over K products is s(0) + s(1) + ... from the left, where s(p) is the chain
s = fma(a[k], b[k], s) from +0.0 over the k of piece p, ascending; a piece has 256 products, the last what is left.
K = 0 gives +0.0. A NaN is always the one without sign and payload. Rounding is to nearest and subnormals are kept,
whatever the thread had chosen. See docs/contract.md.
"""

from __future__ import annotations

from typing import Any

from kernels.contract import native
from kernels.contract.operands import Array
from kernels.registry import get

__all__ = ["matmul", "native"]


def matmul(a: Array, b: Array, out: Array | None = None, *, variant: str = "own", **options: Any) -> Array:
    """The product of matrices by the variant of that name, with its options (`threads=1`); see the module."""
    return get("matmul", variant)(a, b, out, **options)
