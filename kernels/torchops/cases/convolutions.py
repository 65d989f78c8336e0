"""Convolutions, with respect to images, weights and biases."""

import torch.nn.functional as F

from kernels.torchops.cases.operation import operation, prepared

CHANNELS = (1, 8, 32)
BATCH = 64
EDGES = {1: (100,), 2: (14, 14), 3: (6, 6, 6)}


def convolved(draw, function, axes: int, channels: int, transposed: bool = False, dtype="float32"):
    """`function` over images of `axes` axes, to 16 channels, by kernels of 3 points along each."""
    ends = (channels, 16) if transposed else (16, channels)
    return prepared(
        lambda x, w, b: function(x, w, b, padding=1),
        draw.normal((BATCH, channels, *EDGES[axes]), dtype),
        draw.normal((*ends, *[3] * axes), dtype),
        draw.normal(16, dtype),
        differentiate=(0, 1, 2),
        batch=(0,),
    )


@operation("conv1d", documented=("torch.nn.Conv1d",), channels=CHANNELS)
def conv1d(draw, channels):
    return convolved(draw, F.conv1d, 1, channels)


@operation("conv2d", documented=("torch.nn.Conv2d",), channels=CHANNELS, dtype=("float32", "float64"))
def conv2d(draw, channels, dtype):
    return convolved(draw, F.conv2d, 2, channels, dtype=dtype)


@operation("conv3d", documented=("torch.nn.Conv3d",), channels=(1, 8))
def conv3d(draw, channels):
    return convolved(draw, F.conv3d, 3, channels)


@operation("conv_transpose1d", documented=("torch.nn.ConvTranspose1d",), channels=CHANNELS)
def conv_transpose1d(draw, channels):
    return convolved(draw, F.conv_transpose1d, 1, channels, transposed=True)


@operation("conv_transpose2d", documented=("torch.nn.ConvTranspose2d",), channels=CHANNELS)
def conv_transpose2d(draw, channels):
    return convolved(draw, F.conv_transpose2d, 2, channels, transposed=True)


@operation("conv_transpose3d", documented=("torch.nn.ConvTranspose3d",), channels=(1, 8))
def conv_transpose3d(draw, channels):
    return convolved(draw, F.conv_transpose3d, 3, channels, transposed=True)


@operation("conv2d depthwise", documented=(), channels=(8, 32))
def depthwise(draw, channels):
    return prepared(
        lambda x, w: F.conv2d(x, w, padding=1, groups=channels),
        draw.normal((BATCH, channels, 14, 14)),
        draw.normal((channels, 1, 3, 3)),
        differentiate=(0, 1),
        batch=(0,),
    )
