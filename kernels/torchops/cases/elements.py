"""Elementwise functions: no sums, but separate code for whole vectors and the rest, and for other alignments."""

import torch

from kernels.torchops.cases.operation import operation, prepared

COUNTS = (7, 100_003)


@operation("exp", documented=(), count=COUNTS)
def exp(draw, count):
    return prepared(torch.exp, draw.normal(count), differentiate=(0,), batch=(0,))


@operation("tanh", documented=(), count=COUNTS)
def tanh(draw, count):
    return prepared(torch.tanh, draw.normal(count), differentiate=(0,), batch=(0,))


@operation("gelu", documented=(), count=COUNTS)
def gelu(draw, count):
    return prepared(torch.nn.functional.gelu, draw.normal(count), differentiate=(0,), batch=(0,))


@operation("sigmoid", documented=(), count=COUNTS)
def sigmoid(draw, count):
    return prepared(torch.sigmoid, draw.normal(count), differentiate=(0,), batch=(0,))


@operation("addcmul", documented=(), count=COUNTS)
def addcmul(draw, count):
    factors = [draw.normal(count) for _ in range(3)]
    return prepared(torch.addcmul, *factors, differentiate=(0, 1, 2), batch=(0, 1, 2))


@operation("resize_ quantized", documented=("torch.Tensor.resize_",), directions=("forward",))
def resize_quantized(draw):
    def call(x):
        return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).resize_(50).int_repr()

    return prepared(call, draw.normal(100))
