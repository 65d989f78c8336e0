"""Sums of a one-dimensional float64 array, one file per backend; importing this package registers them.

A guarantee here speaks of one process: `run` is the same bits whenever the same array is summed, `layout`
also when it is cut into parts, permuted or summed by another number of threads.
"""

from kernels.sums import cupy, native, numpy, order_free, reference, torch

__all__ = ["cupy", "native", "numpy", "order_free", "reference", "torch"]
