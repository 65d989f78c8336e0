"""Random numbers of a step, keyed by seed, step, node and global element, so that they do not depend on owners.

Each number is a hash of its key (Steele, Lea & Flood 2014, SplitMix64, a bijection with good diffusion), so numbers can
be computed in any order and any part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from kernels.draws import normal_of

GOLDEN = 0x9E3779B97F4A7C15
EVALUATION = 0  # the number of a step that drops nothing; steps of training count from 1


def mixed(z: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64, uint64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def key_of(node: str, number: int, seed: int = 0) -> int:
    """The key of a node in step `number`, 64 bits."""
    return int.from_bytes(hashlib.sha256(f"{seed} {number} {node}".encode()).digest()[:8], "little")


def uniform(key: int, elements: np.ndarray) -> np.ndarray:
    """Uniform numbers in [0, 1) of global elements, float64 multiples of 2^-53."""
    return (_words(key, elements) >> np.uint64(11)) * 2.0**-53


def normal(key: int, elements: np.ndarray) -> np.ndarray:
    """Standard normal numbers of global elements, float64."""
    return normal_of(_words(key, elements))


def _words(key: int, elements: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return mixed(
            mixed(elements.astype(np.uint64) * np.uint64(GOLDEN) + np.uint64(key)) + np.uint64(GOLDEN)
        )


def places(indices: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray:
    """The row-major numbers of the elements of a part of a tensor."""
    flat = np.zeros((1,) * len(shape), np.int64)
    for d, (index, n) in enumerate(zip(indices, shape, strict=True)):
        flat = flat * n + index.reshape([-1 if k == d else 1 for k in range(len(shape))])
    return flat


def draw(step, indices: Sequence[np.ndarray], shape: Sequence[int], seed: int = 0) -> Callable:
    """A function f(number, *operands) that draws the numbers of a random operation in step `number`; dropout drops
    nothing in step EVALUATION."""
    import torch

    name = step.target.split(".")[1]
    elements = places(indices, shape)
    dtype = getattr(torch, step.dtypes[0])

    def drawn(number: int, function=uniform):
        return torch.from_numpy(
            np.broadcast_to(function(key_of(step.node, number, seed), elements), elements.shape).copy()
        )

    if name == "native_dropout":
        p, train = step.args[1], step.args[2]

        def dropout(number: int, x):
            if not train or p == 0 or number == EVALUATION:
                return x.clone(), torch.ones_like(x, dtype=torch.bool)
            mask = drawn(number) >= p
            return torch.where(mask, x / (1 - p), torch.zeros((), dtype=x.dtype)), mask

        return dropout
    if name == "bernoulli":

        def bernoulli(number: int, x):
            p = step.args[1] if len(step.args) > 1 and isinstance(step.args[1], float) else x.double()
            return (drawn(number) < p).to(dtype)

        return bernoulli
    function = normal if name.startswith("randn") else uniform
    return lambda number, *_: drawn(number, function).to(dtype)
