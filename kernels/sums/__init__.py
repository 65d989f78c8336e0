"""Sums, dot products and norms of one-dimensional arrays, one file per backend; importing this registers them.

A guarantee here speaks of one process: `run` is the same bits whenever the same array is summed, `layout`
also when it is cut into parts, permuted or summed by another number of threads.

What every variant makes of uncommon input, for all types of elements:

| input | result |
|---|---|
| a NaN, infinities of both signs, in a dot product 0 times infinity | NaN |
| infinities of one sign | that infinity, in compensated sums too |
| nothing, or zeros of whatever signs | +0.0 |
| subnormal numbers | taken as they are, never as zeros |
| a sum beyond the largest number | infinity |
| only a partial sum beyond it | an infinity or NaN in an order of additions; order-free sums are not touched by it |
| a product beyond it | infinity of its sign, but order-free sums hold all products of narrower types than float64 |
| squares beyond or far below the range, in a norm | the norm all the same: its vector is scaled before |
| strided, reversed, read-only, misaligned, of the other byte order | as a contiguous copy |
| other types of elements, shapes, lengths | TypeError or ValueError, which names the variant |

There is no limit to the number of elements.
"""

from kernels.sums import emulated, native, norm, numpy, order_free, reference, torch, twins

from kernels.sums import cupy  # isort: skip  (last: `registry.get` takes the first backend that can run)

norm.register()

__all__ = ["cupy", "emulated", "native", "norm", "numpy", "order_free", "reference", "torch", "twins"]
