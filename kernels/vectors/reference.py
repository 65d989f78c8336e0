"""Fused vector updates in plain NumPy, step by step; the other backends must have the same bits."""

import numpy as np

from kernels.stencil.reference import lanes_sum
from kernels.vectors.fused import Bound, Fused, bind
from kernels.vectors.steps import Step

xp = np


def fuse(vectors, steps: str, dots: str = "", starts=None, threads: int = 1) -> Fused:
    """Plans steps on `vectors` ({name: array}), followed by the dot products of every block.

    vectors: at least starts[-1] elements, float64 or float32, all of one type; further elements are not touched.
    `steps` and `dots` are in the language of `kernels.vectors.steps`. starts: int64 (blocks + 1,), the first element of
    each block and the end; None is one block. A dot product adds the products in float64, also for float32, in 64 lanes
    per block. `threads` share the blocks and do not change bits. Raises ValueError and TypeError that name the step or
    vector.
    """
    bound = bind(xp, vectors, steps, dots, starts, threads)
    program, arrays = bound.program, bound.arrays

    def run(partials, values):
        scalars = dict(zip(program.scalars, values, strict=True))
        with np.errstate(all="ignore"):
            for step in program.steps:
                arrays[step.target][: bound.n] = _value(step, bound, scalars)
            for k, (a, b) in enumerate(program.dots):
                products = arrays[a][: bound.n].astype(np.float64) * arrays[b][: bound.n].astype(np.float64)
                for block, sum_of in enumerate(np.split(products, bound.starts[1:-1])[: len(partials)]):
                    partials[block, k] = lanes_sum(sum_of)

    return Fused(bound, run)


def _value(step: Step, bound: Bound, scalars: dict[str, float]):
    number, total = bound.dtype.type, None
    for term in step.terms:
        by = number(term.by) if term.scalar is None else number(term.by) * number(scalars[term.scalar])
        value = by
        for name in term.vectors:
            value = value * bound.arrays[name][: bound.n]
        total = value if total is None else total + value
    return total
