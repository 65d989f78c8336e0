"""Helpers of the tests of attention: random operands, both passes at once, and sizes of more than a piece."""

import numpy as np
import pytest

from kernels.contract import attention, attention_backward
from kernels.contract.native import PIECE

from .contract import TYPES, numbers, same

NAMES = ("out", "logsumexp", "gradient of q", "gradient of k", "gradient of v")
each_type = pytest.mark.parametrize("dtype", TYPES)
each_long_sum = pytest.mark.parametrize(
    "queries, keys, depth, width, causal",
    [(PIECE + 3, 2, 3, 1, False), (PIECE + 2, 3, 1, 2, True), (2, PIECE + 40, 2, 1, False),
     (1, 3, PIECE + 1, 2, False), (2, 3, 1, PIECE + 5, True)],
)  # fmt: skip


def heads(rng, dtype, samples, heads, queries, keys, depth, width, decades=0):
    """The gradient of the result, q, k and v."""
    shapes = (queries, width), (queries, depth), (keys, depth), (keys, width)
    return [numbers(rng, dtype, samples, heads, *shape, decades=decades) for shape in shapes]


def drawn_mask(rng, dtype, *shape):
    """Numbers, of which some are -inf."""
    return np.where(rng.random(shape) < 0.3, -np.inf, rng.standard_normal(shape)).astype(dtype)


def hard_case(dtype, seed):
    """Operands of one head, some of several magnitudes, some with a number that is infinite or none, and options."""
    rng = np.random.default_rng(seed)
    queries, keys, depth, width = (int(n) for n in rng.integers(1, (9, 40, 20, 20)))
    operands = heads(rng, dtype, 1, 1, queries, keys, depth, width, decades=seed % 2)
    if seed % 5 == 0:
        operands[seed // 5 % 4].reshape(-1)[0] = (np.nan, np.inf, -np.inf)[seed % 3]
    mask = drawn_mask(rng, dtype, queries, keys) if seed % 3 == 0 else None
    return operands, dict(causal=seed % 4 < 2, mask=mask, scale=0.3 if seed % 7 == 0 else None)


def both(gradient, q, k, v, **how):
    """The results of both passes, in the order of NAMES."""
    done = attention(q, k, v, **how)
    return [*done, *attention_backward(gradient, q, k, v, *done, **how)]


def all_same(xs, ys):
    """Whether the results of both passes have the same bits."""
    return all(same(x, y) for x, y in zip(xs, ys, strict=True))
