"""Kernels of a plan: results do not depend on the other blocks of a rank."""

import pytest
import torch

from kernels.contract.certify import placed
from miniapps.partition.execution.compute import Kernels

ATTENTION = "aten._scaled_dot_product_flash_attention_for_cpu"


def both_passes(level, gradient, *operands):
    """What the forward and the backward kernel of causal attention return."""
    kernels = Kernels(level)
    forward = kernels.function(f"{ATTENTION}.default", "attention", {})
    backward = kernels.function(f"{ATTENTION}_backward.default", "attention", {})
    done = forward(*operands, 0.0, True)
    return [*done, *backward(gradient, *operands, *done, 0.0, True)]


@pytest.mark.parametrize("level", ["layout", "exact"])
def test_samples_and_heads_by_themselves_have_the_bits_of_all(level):
    generator = torch.Generator().manual_seed(0)
    # With an operand 8 bytes beyond a multiple of 64 torch's kernel has other bits.
    operands = [torch.randn(3, 4, 33, 24, dtype=torch.float64, generator=generator) for _ in range(4)]
    whole = both_passes(level, *operands)
    for b in range(3):
        for h in range(4):
            parts = both_passes(level, *(placed(x[b : b + 1, h : h + 1], 8) for x in operands))
            assert all(torch.equal(x, y[b : b + 1, h : h + 1]) for x, y in zip(parts, whole, strict=True))


@pytest.mark.parametrize("level", ["run", "layout"])
def test_dropout_of_attention_is_refused_where_bits_are_promised(level):
    operands = [torch.ones(1, 1, 2, 2) for _ in range(3)]
    forward = Kernels(level).function(f"{ATTENTION}.default", "attention", {})
    with pytest.raises((ValueError, RuntimeError), match="dropout"):
        forward(*operands, 0.5, False)
