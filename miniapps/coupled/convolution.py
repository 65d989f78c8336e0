"""A convolution of all blocks in one call, with a gradient of the weights for each block, under torch's autograd; and
the sigmoid.

The chains of `kernels.contract` give a block the same bits in any batch and with any number of threads. A block is one
sample, so the gradients of the weights are one convolution with a group per block: the sum of a group has the points of
its block alone.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.contract import native
from kernels.contract.elements import element


class _PerBlock(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x, weights, biases, threads: int):
        ctx.save_for_backward(x, weights)
        ctx.threads = threads
        return native.conv(x.detach(), weights[0].detach(), threads=threads).add_(biases[0, :, None, None])

    @staticmethod
    def backward(ctx: Any, gradient):
        x, weights = (tensor.detach() for tensor in ctx.saved_tensors)
        blocks, outputs, inputs, *window = weights.shape
        gradient, threads = gradient.contiguous(), ctx.threads
        of_x = of_weights = of_biases = None
        if ctx.needs_input_grad[0]:
            of_x = native.conv_input(gradient, weights[0], x.shape[2:], threads=threads)
        if ctx.needs_input_grad[1]:
            x = x.reshape(1, blocks * inputs, *x.shape[2:])
            each = gradient.reshape(1, blocks * outputs, *gradient.shape[2:])
            of_weights = native.conv_weight(x, each, window, groups=blocks, threads=threads)
            of_weights = of_weights.reshape(weights.shape)
        if ctx.needs_input_grad[2]:
            of_biases = native.rowsum(gradient, (2, 3), threads=threads)
        return of_x, of_weights, of_biases, None


def conv(x, weights, biases, threads: int = 1):
    """The convolution of x (blocks, inputs, h, w), float32, with `weights` (blocks, outputs, inputs, *window) and
    `biases` (blocks, outputs): copies of the same numbers for every block, whose gradients are those of each block
    alone. Without padding; the bits of a block depend on its own numbers alone."""
    return _PerBlock.apply(x, weights, biases, threads)


class _Sigmoid(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x):
        y = element("sigmoid", x.detach())
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient):
        (y,) = ctx.saved_tensors
        return gradient * ((1.0 - y) * y)


def sigmoid(x):
    """The sigmoid of x, float32, by fixed operations: the same bits with every set of instructions."""
    return _Sigmoid.apply(x)
