"""Fused vector updates in CUDA C++ generated from the steps (kernels/cuda/vectors.cu): one launch, with the bits of
`reference`.

Vectors and partial sums are arrays of CuPy. Calls return when their work is queued on the current stream.
"""

import cupy as xp
import numpy as np

from kernels.cuda import kernel
from kernels.vectors.fused import Fused, bind
from kernels.vectors.generate import macros, memories

LANES = 64  # threads of a block
PIECE = 16 * LANES  # elements of a thread block where there are no dot products


def fuse(vectors, steps: str, dots: str = "", starts=None, threads: int = 1) -> Fused:
    """As `reference.fuse`; `starts` is in host memory, `threads` is for other backends."""
    bound = bind(xp, vectors, steps, dots, starts, threads)
    blocks = bound.starts
    if not bound.program.dots:  # any cut has the same bits, and an even one is faster
        blocks = np.append(np.arange(0, bound.n, PIECE), bound.n)
    count, blocks = len(blocks) - 1, xp.asarray(blocks)
    update, memory, none = kernel("vectors", "update", **macros(bound)), memories(bound).values(), xp.empty(0)

    def run(partials, values):
        if count:
            arguments = (blocks, none if partials is None else partials, *memory, *values)
            update((count,), (LANES,), arguments)

    return Fused(bound, run)
