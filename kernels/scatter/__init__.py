"""Scatter-adds `out[index[i]] += x[i]`, one file per backend; importing this package registers them.

    get("scatter_add", "sorted")(x, index, bins) -> out

A guarantee here is about one process. `run`: the same bits whenever the same input is added. `layout`: also when the
input is permuted, or added by another number of threads.
"""

from kernels.scatter import native, numpy, reference, torch

from kernels.scatter import cupy, emulated  # isort: skip  (last: `registry.get` takes the first that can run)

__all__ = ["cupy", "emulated", "native", "numpy", "reference", "torch"]
