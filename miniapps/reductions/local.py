"""A rank's share of a sum before the all-reduce: partial sums, or words of a superaccumulator.

Under the guarantees `none` and `run` a rank adds up its whole part at once. Under `layout` and `exact` (`per_block` of
the policy) it adds up logical blocks of fixed length with one thread each, so that a partial sum does not depend on
the rank that computes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from kernels import exact
from kernels.guarantees import meets
from kernels.registry import Variant
from miniapps.reductions.choice import ON_DEVICE

WIDENED = 1 << 16  # elements that are converted to float64 at once
REVERSED = 1 << 20  # the most elements whose order is reversed to test whether it changes the bits


def parameters(
    variant: Variant, launch: dict[str, int], per_block: bool, threads: int, dtype: str
) -> dict[str, Any]:
    """The arguments of `variant` beside the data: launch shape, threads, and the name of bfloat16, which CuPy lacks.

    With `per_block`, a block is added up by one thread if the number of threads can change the bits, that is, if the
    variant itself promises less than `layout`.
    """
    single = per_block and not meets(variant.guarantee, "layout")
    offered: dict[str, Any] = launch | {"threads": 1 if single else threads}
    if dtype == "bfloat16":
        offered["dtype"] = dtype
    return {name: value for name, value in offered.items() if name in variant.parameters}


def put(vector: np.ndarray, device: str):
    """`vector` as the variants of `device` take it: itself, or a CuPy array, where uint16 holds the bits of
    bfloat16."""
    if device == "cpu":
        return vector
    import cupy

    return cupy.asarray(vector.view(np.uint16) if vector.dtype.name == "bfloat16" else vector)


@contextlib.contextmanager
def torch_threads(variants: list[Variant], per_block: bool, threads: int) -> Iterator[None]:
    """Within the context, torch (if it is among the backends) uses the same number of threads as `parameters` gives to
    other backends."""
    if not any(variant.backend == "torch" for variant in variants):
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1 if per_block else threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def pieces(vectors: list, cuts: list[tuple[int, int]], per_block: bool) -> list[tuple]:
    """The units that are summed at once: this rank's whole part, or each of its logical blocks; views of `vectors`."""
    if not per_block:
        cuts = [(0, cuts[-1][1])] if cuts else []
    return [tuple(vector[start:stop] for vector in vectors) for start, stop in cuts]


def partial_sums(
    variant: Variant, parts: list[tuple], parameters: dict[str, Any], dtype: np.dtype
) -> Callable[[], np.ndarray]:
    """A function that computes the partial sums of `parts`, `dtype` (len(parts),), in an array that it reuses."""
    sums = np.empty(len(parts), dtype)
    function = partial(variant.function, **parameters)

    def compute() -> np.ndarray:
        for i, part in enumerate(parts):
            sums[i] = function(*part)
        return sums

    return compute


def exact_words(variant: Variant, vectors: list, dtype: str) -> Callable[[], np.ndarray]:
    """A function that adds up `vectors` exactly, in words without rounding: int64 (WORDS,)."""
    words = exact.zeros()

    def on_host() -> np.ndarray:
        words.fill(0)
        accumulate(words, tuple(vectors))
        return words

    def on_device() -> np.ndarray:
        from kernels.sums import cupy

        type_name = dtype if dtype == "bfloat16" else ""
        return cupy.exact_words(variant.operation, vectors, type_name) if len(vectors[0]) else words

    return on_device if variant.backend in ON_DEVICE else on_host


def accumulate(words: np.ndarray, part: tuple) -> None:
    """Add the elements of one vector, or the products of two, to `words`. Products of types narrower than float64 are
    exact in float64; a product of two float64 is added as its rounded value and its rounding error."""
    if part[0].dtype == np.float64:
        add = exact.add if len(part) == 1 else exact.add_products
        add(words, *part)
        return
    for start in range(0, len(part[0]), WIDENED):
        wide = [vector[start : start + WIDENED].astype(np.float64) for vector in part]
        exact.add(words, wide[0] if len(wide) == 1 else wide[0] * wide[1])


def magnitudes(words: np.ndarray, part: tuple) -> None:
    """Add the absolute values of the terms that `accumulate` adds, each rounded to float64."""
    terms = np.abs(_double(part[0]))
    for factor in part[1:]:
        terms *= np.abs(_double(factor))
    exact.add(words, terms)


def _double(x: np.ndarray) -> np.ndarray:
    return x if x.dtype == np.float64 else x.astype(np.float64)
