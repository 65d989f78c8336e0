"""Each sum and dot product adds in the order that it states, bit for bit, for all types of elements."""

from fractions import Fraction

import numpy as np
import pytest

from kernels import registry
from kernels.sums.launch import shape

from .hard import bits
from .sums import OPERATIONS, each_type, factors, terms

LENGTHS = [0, 1, 2, 63, 64, 65, 127, 128, 1023, 1024, 1025, 2049, 4095, 4096, 4097, 12289]
SHAPES = [{}, {"block": 32, "items": 1, "grid": 3}, {"block": 64, "items": 2, "grid": 50}, {"block": 1024}]


def left_to_right(t):
    total = t.dtype.type(0)
    for v in t:
        total = total + v
    return total


def lanes(t, width=64):
    lane = np.zeros(width, t.dtype)
    for start in range(0, len(t), width):
        row = t[start : start + width]
        lane[: len(row)] += row
    while width > 1:
        width //= 2
        lane[:width] += lane[width : 2 * width].copy()
    return lane[0]


def pairwise(t):
    if len(t) <= 1024:
        return lanes(t)
    half = -(-(len(t) // 2) // 64) * 64
    return pairwise(t[:half]) + pairwise(t[half:])


def kahan(t):
    total = error = t.dtype.type(0)
    for v in t:
        term = v - error
        new = total + term
        error = (new - total) - term
        total = new
    return total


def neumaier(t):
    total = error = t.dtype.type(0)
    for v in t:
        new = total + v
        error = error + ((total - new) + v if abs(total) >= abs(v) else (v - new) + total)
        total = new
    return total + error


def aligned_tree(p):
    p, s = p.copy(), 1
    while s < len(p):
        for i in range(0, len(p) - s, 2 * s):
            p[i] += p[i + s]
        s *= 2
    return p[0] if len(p) else p.dtype.type(0)


def segments(t, length, width):
    return np.array([lanes(t[i : i + length], width) for i in range(0, len(t), length)], dtype=t.dtype)


def block_tree(t):
    return aligned_tree(segments(t, 4096, 64))


def omp_ordered(t, threads):
    each, longer = divmod(len(t), threads)
    ends = np.cumsum([each + (i < longer) for i in range(threads)])
    return left_to_right(np.array([lanes(part) for part in np.split(t, ends[:-1])], dtype=t.dtype))


SERIAL = {
    "reference": left_to_right,
    "lanes": lanes,
    "pairwise": pairwise,
    "kahan": kahan,
    "neumaier": neumaier,
    "block-tree": block_tree,
}
LAUNCHED = {
    "sptr": lambda p, block: lanes(p, block),
    "sprg": lambda p, block: left_to_right(p),
    "tprc": lambda p, block: left_to_right(p),
    "sp-pairwise": lambda p, block: aligned_tree(p),
    "sp-neumaier": lambda p, block: neumaier(p),
}


def variants(names):
    """Those of the names that have the operation, on the CPU; every name has a sum."""
    return [
        pytest.param(v, id=f"{v.operation}-{v.name}")
        for operation in OPERATIONS
        for v in registry.variants(operation)
        if v.name in names and v.backend in ("reference", "native")
    ]


@pytest.mark.parametrize("variant", variants(SERIAL))
@each_type
def test_the_order_is_the_one_stated(variant, kind):
    for n in LENGTHS:
        vectors = factors(variant.operation, n, kind)
        assert bits(variant(*vectors)) == bits(SERIAL[variant.name](terms(vectors))), n


@pytest.mark.parametrize("variant", variants(LAUNCHED))
@each_type
def test_the_launch_shape_fixes_the_order(variant, kind):
    for given in SHAPES:
        for n in LENGTHS[::2]:
            launched = shape(n, **given)
            vectors = factors(variant.operation, n, kind)
            p = segments(terms(vectors), launched.segment, launched.block)
            stated = LAUNCHED[variant.name](p, launched.block)
            assert bits(variant(*vectors, **given)) == bits(stated), (n, given)


@pytest.mark.parametrize("variant", variants(["omp-ordered"]))
@each_type
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_threads_cut_the_array_and_their_order_adds_the_parts(variant, kind, threads):
    for n in [0, 1, 7, 8, 9, 1000, 4097]:
        vectors = factors(variant.operation, n, kind)
        assert bits(variant(*vectors, threads=threads)) == bits(omp_ordered(terms(vectors), threads)), n


@each_type
def test_dot2_keeps_the_errors_of_products_and_additions(kind):
    dot2 = registry.get("dot", "dot2")
    for n in [0, 1, 2, 1000]:
        x, y = factors("dot", n, kind)
        t = terms([x, y])
        total = error = t.dtype.type(0)
        for a, b, product in zip(x.astype(float), y.astype(float), t, strict=True):
            lost = t.dtype.type(float(Fraction(a) * Fraction(b) - Fraction(float(product))))
            new = total + product
            taken = new - total
            error = error + (((total - (new - taken)) + (product - taken)) + lost)
            total = new
        assert bits(dot2(x, y)) == bits(total + error), n


def test_every_order_that_promises_to_repeat_is_stated_here_or_belongs_to_a_library():
    here = {*SERIAL, *LAUNCHED, "omp-ordered", "dot2", "numpy", "torch"}
    promised = {
        v.name
        for operation in OPERATIONS
        for v in registry.variants(operation)
        if v.guarantee == "run" and v.backend != "cupy"
    }
    assert promised == here
