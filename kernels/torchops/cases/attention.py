"""Attention: products, a softmax, and products again, fused or separate."""

import torch.nn.functional as F

from kernels.torchops.cases.operation import operation, prepared


@operation("scaled_dot_product_attention", length=(16, 100), causal=(False, True))
def attention(draw, length, causal):
    shape = (16, 2, length, 32)
    return prepared(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        draw.normal(shape),
        draw.normal(shape),
        draw.normal(shape),
        differentiate=(0, 1, 2),
        batch=(0, 1, 2),
    )
