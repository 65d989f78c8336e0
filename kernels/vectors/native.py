"""Fused vector updates in C++ (kernels/native/vectors.cpp), by tiles, threads over blocks, with the bits of
`reference`."""

import numpy as xp

from kernels import _native
from kernels.vectors.fused import Fused, bind

__all__ = ["fuse", "xp"]


def fuse(vectors, steps: str, dots: str = "", starts=None, threads: int = 1) -> Fused:
    """As `reference.fuse`."""
    bound = bind(xp, vectors, steps, dots, starts, threads)
    program = bound.program
    place = {name: k for k, name in enumerate(bound.arrays)}
    scalar = {name: k for k, name in enumerate(program.scalars)} | {None: -1}

    def coded(term):
        return term.by, scalar[term.scalar], place[term.vectors[0]], [place[v] for v in term.vectors[1:]]

    make = _native.FusedFloat64 if bound.dtype == xp.float64 else _native.FusedFloat32
    planned = make(
        list(bound.arrays.values()),
        [(place[step.target], [coded(term) for term in step.terms]) for step in program.steps],
        [(place[a], place[b]) for a, b in program.dots],
        bound.starts.tolist(),
        threads,
    )
    return Fused(bound, planned.run)
