"""Scatter-adds `out[index[i]] += x[i]`, one file per backend; importing this package registers them.

    get("scatter_add", "sorted")(x, index, bins) -> out

A guarantee here speaks of one process: `run` is the same bits whenever the same input is added, `layout` also
when it is permuted, or added by another number of threads.
"""

from kernels.scatter import native, numpy, reference, torch

__all__ = ["native", "numpy", "reference", "torch"]
