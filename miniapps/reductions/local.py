"""What a rank computes of a sum before the all-reduce: partial sums, or words of a superaccumulator.

Under the guarantees `none` and `run` a rank adds up its whole part at once. Under `layout` and `exact` (`per_block` of
the policy) it sees logical blocks of fixed length, one thread in each, so that a partial sum does not depend on who
computes it.
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

WIDENED = 1 << 16  # elements that are made float64 at once
REVERSED = 1 << 20  # elements, at most, whose order is reversed to see whether it enters


def parameters(
    variant: Variant, launch: dict[str, int], per_block: bool, threads: int, dtype: str
) -> dict[str, Any]:
    """What `variant` is told beside the data: the launch shape, threads, and the type that CuPy does not know.

    With `per_block` one thread in each block where the number of threads enters the bits: where the variant promises
    less than `layout` itself.
    """
    single = per_block and not meets(variant.guarantee, "layout")
    offered: dict[str, Any] = launch | {"threads": 1 if single else threads}
    if dtype == "bfloat16":
        offered["dtype"] = dtype
    return {name: value for name, value in offered.items() if name in variant.parameters}


def put(vector: np.ndarray, device: str):
    """`vector` where the variants of `device` want it: itself, or a CuPy array; bfloat16 there as its bits."""
    if device == "cpu":
        return vector
    import cupy

    return cupy.asarray(vector.view(np.uint16) if vector.dtype.name == "bfloat16" else vector)


@contextlib.contextmanager
def torch_threads(variants: list[Variant], per_block: bool, threads: int) -> Iterator[None]:
    """torch, where it is among the backends, uses as many threads inside as `parameters` says for the others."""
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
    """What is summed at once: this rank's part, or each of its logical blocks; views of `vectors`."""
    if not per_block:
        cuts = [(0, cuts[-1][1])] if cuts else []
    return [tuple(vector[start:stop] for vector in vectors) for start, stop in cuts]


def partial_sums(
    variant: Variant, parts: list[tuple], parameters: dict[str, Any], dtype: np.dtype
) -> Callable[[], np.ndarray]:
    """A function that computes the partial sums of `parts`, `dtype` (len(parts),), in an array of its own."""
    sums = np.empty(len(parts), dtype)
    function = partial(variant.function, **parameters)

    def compute() -> np.ndarray:
        for i, part in enumerate(parts):
            sums[i] = function(*part)
        return sums

    return compute


def exact_words(variant: Variant, vectors: list, dtype: str) -> Callable[[], np.ndarray]:
    """A function that adds up `vectors` exactly, in words that are not rounded: int64 (WORDS,)."""
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
    exact in float64; those of float64 enter in both parts."""
    if part[0].dtype == np.float64:
        add = exact.add if len(part) == 1 else exact.add_products
        add(words, *part)
        return
    for start in range(0, len(part[0]), WIDENED):
        wide = [vector[start : start + WIDENED].astype(np.float64) for vector in part]
        exact.add(words, wide[0] if len(wide) == 1 else wide[0] * wide[1])


def magnitudes(words: np.ndarray, part: tuple) -> None:
    """Add the absolute values of what `accumulate` adds, each rounded to float64."""
    terms = np.abs(_double(part[0]))
    for factor in part[1:]:
        terms *= np.abs(_double(factor))
    exact.add(words, terms)


def _double(x: np.ndarray) -> np.ndarray:
    return x if x.dtype == np.float64 else x.astype(np.float64)
