"""Sums, dot products and norms of one-dimensional arrays, one file per backend; importing this package registers them.

A guarantee here is about one process. `run`: the same bits whenever the same array is summed. `layout`: also when it is
cut into parts, permuted or summed by another number of threads.

Results of every variant for uncommon input, for all types of elements:

| input | result |
|---|---|
| a NaN, infinities of both signs, in a dot product 0 times infinity | NaN |
| infinities of one sign | that infinity, in compensated sums too |
| an empty array, or zeros of any signs | +0.0 |
| subnormal numbers | keep their values, never become zeros |
| a sum beyond the largest number | infinity |
| only a partial sum beyond it | an infinity or NaN in an order of additions; order-free sums are not affected |
| a product beyond it | infinity of its sign, but order-free sums hold all products of narrower types than float64 |
| squares beyond or far below the range, in a norm | the norm: its vector is scaled first |
| strided, reversed, read-only, misaligned, of the other byte order | the result of a contiguous copy |
| other types of elements, shapes, lengths | TypeError or ValueError, which names the variant |

There is no limit to the number of elements.
"""

from kernels.sums import emulated, native, norm, numpy, order_free, reference, torch, twins

from kernels.sums import cupy  # isort: skip  (last: `registry.get` takes the first backend that can run)

norm.register()

__all__ = ["cupy", "emulated", "native", "norm", "numpy", "order_free", "reference", "torch", "twins"]
