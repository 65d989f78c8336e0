"""Sums and dot products of one-dimensional arrays, one file per backend; importing this package registers them.

A guarantee here speaks of one process: `run` is the same bits whenever the same array is summed, `layout`
also when it is cut into parts, permuted or summed by another number of threads.
"""

from kernels.sums import emulated, native, numpy, order_free, reference, torch, twins

from kernels.sums import cupy  # isort: skip  (last: `registry.get` takes the first backend that can run)

__all__ = ["cupy", "emulated", "native", "numpy", "order_free", "reference", "torch", "twins"]
