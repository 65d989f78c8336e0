"""Helpers of the tests of sums: the variants that can run here, element types, samples, exact values."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import kernels.sums  # noqa: F401  (registers its variants)
from kernels import registry
from kernels.sums.elements import widened

TYPES = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
OPERATIONS = {"sum": 1, "dot": 2}  # vectors that each takes
HOST = ("reference", "numpy", "torch", "native", "emulated")
HERE = [
    v
    for operation in OPERATIONS
    for v in registry.variants(operation)
    if v.backend in HOST and v.unavailable() is None
]

each_type = pytest.mark.parametrize("kind", TYPES)


def named(variants):
    return pytest.mark.parametrize("variant", variants, ids=lambda v: f"{v.operation}-{v.name}-{v.backend}")


def in_each_type(variants, kinds=tuple(TYPES)):
    """Every variant with every type."""
    cases = [(v, kind) for v in variants for kind in kinds]
    ids = [f"{v.operation}-{v.name}-{v.backend}-{kind}" for v, kind in cases]
    return pytest.mark.parametrize("variant, kind", cases, ids=ids)


def promising(*guarantees):
    return [v for v in HERE if v.guarantee in guarantees]


def sample(n, kind="float64", decades=8, seed=0):
    """Numbers of both signs over many decades; for float16, which ends at 65504, from 10**-7 to 10**3 at most."""
    rng = np.random.default_rng(seed)
    low, high = (-min(decades, 7), min(decades, 3)) if kind == "float16" else (-decades, decades)
    return (rng.standard_normal(n) * 10.0 ** rng.integers(low, high + 1, n)).astype(TYPES[kind])


def factors(operation, n, kind="float64", decades=8, seed=0):
    """The vectors that an operation takes."""
    return [sample(n, kind, decades, seed + 1000 * i) for i in range(OPERATIONS[operation])]


def terms(vectors):
    """What is added up: elements in the type of the accumulator, or their products, rounded to it."""
    with np.errstate(all="ignore"):
        return np.prod([widened(v) for v in vectors], axis=0)


def exact_terms(vectors):
    """The elements, or their products, as fractions."""
    columns = [[Fraction(v) for v in vector.astype(np.float64).tolist()] for vector in vectors]
    return [math.prod(row) for row in zip(*columns, strict=True)]


def nans(kind):
    """NaNs of both signs that differ in their payloads: quiet ones and signalling ones, (6,)."""
    info = ml_dtypes.finfo(TYPES[kind])
    infinity, quiet, sign = (
        np.array([np.inf], TYPES[kind]).view(f"u{info.bits // 8}"),
        1 << (info.nmant - 1),
        1 << (info.bits - 1),
    )
    return (
        infinity | np.array([1, quiet, quiet | 1, sign | 2, sign | quiet, sign | quiet | 3], infinity.dtype)
    ).view(TYPES[kind])
