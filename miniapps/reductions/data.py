"""The summands: drawn block by block, or read from a file."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from kernels import draws
from miniapps.errors import UsageError
from miniapps.reductions import files, illconditioned
from miniapps.reductions.parts import Parts


def element_type(name: str) -> np.dtype:
    """The dtype named `name`, including bfloat16."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def vectors_of(operation: str) -> int:
    """The number of vectors that the operation takes."""
    return 2 if operation == "dot" else 1


def extent(problem) -> tuple[list[int], int]:
    """(sizes, number of arrays of each size), from the configuration or the file. Raises UsageError if the file does
    not suit the configuration."""
    if problem.distribution == "file":
        arrays, n = files.extent(problem.file, element_type(problem.dtype), vectors_of(problem.operation))
        return [n], arrays
    return list(dict.fromkeys(problem.sizes)), problem.arrays


def vectors(problem, seed: int, array: int, parts: Parts) -> list[np.ndarray]:
    """This rank's part of array number `array`: one or two vectors (parts.elements,) of the element type.

    Each block has its own generator, keyed by (seed, array, n, block), so that the numbers do not depend on the layout.
    Raises UsageError if the type cannot hold a number, or if the file cannot be read.
    """
    dtype, count = element_type(problem.dtype), vectors_of(problem.operation)
    arrays = [np.empty(parts.elements, dtype) for _ in range(count)]
    if problem.distribution == "file":
        files.read(problem.file, dtype, array, parts, arrays)
        return arrays
    for block, (start, stop) in zip(parts.own.tolist(), parts.cuts, strict=True):
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, array, parts.n, block))))
        for vector, drawn in zip(
            arrays, _draw(problem, rng, stop - start, parts.n, dtype, count), strict=True
        ):
            vector[start:stop] = drawn
    return arrays


def _draw(problem, rng, m: int, n: int, dtype: np.dtype, count: int) -> list[np.ndarray]:
    """One block: `count` arrays (m,)."""
    if problem.distribution == "ill-conditioned":
        return illconditioned.block(rng, m, n, problem.condition, dtype, count)
    draw = {
        "uniform": lambda: draws.uniform(rng, 0.0, 10.0, m),
        "centred": lambda: draws.uniform(rng, -10.0, 10.0, m),
        "normal": lambda: draws.normal(rng, m),
        "lognormal": lambda: draws.lognormal(rng, problem.sigma, m),
    }[problem.distribution]
    with np.errstate(over="ignore"):
        drawn = [draw().astype(dtype) for _ in range(count)]
    if not all(np.isfinite(x.astype(np.float32) if dtype.itemsize < 4 else x).all() for x in drawn):
        raise UsageError(
            f"problem.sigma = {problem.sigma:g}: a lognormal number exceeds the largest {dtype}; choose a smaller "
            "sigma or a wider problem.dtype"
        )
    return drawn
