"""Pooling by maximum and by mean, and unpooling."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from kernels.torchops.cases.operation import operation, prepared

SHAPES = {1: (16, 8, 256), 2: (16, 8, 24, 24), 3: (8, 4, 10, 10, 10)}


def pooled(draw, function, axes: int):
    """`function` of images with `axes` spatial axes."""
    return prepared(function, draw.normal(SHAPES[axes]), differentiate=(0,), batch=(0,))


@operation("max_pool2d", stride=(1, 2))
def max_pool2d(draw, stride):
    return pooled(draw, lambda x: F.max_pool2d(x, 3, stride), 2)


@operation("max_pool3d", documented=("torch.nn.MaxPool3d",), stride=(1, 2))
def max_pool3d(draw, stride):
    return pooled(draw, lambda x: F.max_pool3d(x, 3, stride), 3)


@operation("avg_pool1d", stride=(1, 2))
def avg_pool1d(draw, stride):
    return pooled(draw, lambda x: F.avg_pool1d(x, 3, stride), 1)


@operation("avg_pool2d", stride=(1, 2))
def avg_pool2d(draw, stride):
    return pooled(draw, lambda x: F.avg_pool2d(x, 3, stride), 2)


@operation("avg_pool3d", documented=("torch.nn.AvgPool3d",), stride=(1, 2))
def avg_pool3d(draw, stride):
    return pooled(draw, lambda x: F.avg_pool3d(x, 3, stride), 3)


@operation("adaptive_avg_pool2d", documented=("torch.nn.AdaptiveAvgPool2d",), size=(1, 5))
def adaptive_avg_pool2d(draw, size):
    return pooled(draw, lambda x: F.adaptive_avg_pool2d(x, size), 2)


@operation("adaptive_avg_pool3d", documented=("torch.nn.AdaptiveAvgPool3d",), size=(1, 3))
def adaptive_avg_pool3d(draw, size):
    return pooled(draw, lambda x: F.adaptive_avg_pool3d(x, size), 3)


@operation("adaptive_max_pool2d", documented=("torch.nn.AdaptiveMaxPool2d",), size=(1, 5))
def adaptive_max_pool2d(draw, size):
    return pooled(draw, lambda x: F.adaptive_max_pool2d(x, size), 2)


def fractional(draw, function, axes: int, size: int):
    """Fractional pooling; its random cuts are drawn here, not by torch."""
    batch, channels = SHAPES[axes][:2]
    cuts = draw.positive((batch, channels, axes)) - 0.5
    return prepared(
        lambda x, cuts: function(x, 2, output_size=size, _random_samples=cuts),
        draw.normal(SHAPES[axes]),
        cuts,
        differentiate=(0,),
        batch=(0, 1),
    )


@operation("fractional_max_pool2d", documented=("torch.nn.FractionalMaxPool2d",), size=(5, 12))
def fractional_max_pool2d(draw, size):
    return fractional(draw, F.fractional_max_pool2d, 2, size)


@operation("fractional_max_pool3d", documented=("torch.nn.FractionalMaxPool3d",), size=(3, 5))
def fractional_max_pool3d(draw, size):
    return fractional(draw, F.fractional_max_pool3d, 3, size)


def unpooled(draw, axes: int, overlap: bool):
    """Unpooling to the places of the maxima; with `overlap` windows share places, so several values go to one place."""
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[axes - 1]
    unpool: Callable[..., Any] = (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[axes - 1]
    shape = SHAPES[axes]
    stride = 1 if overlap else 2
    _, where = pool(torch.from_numpy(draw.normal(shape)), 2, stride, return_indices=True)
    values = draw.normal(tuple(where.shape))
    return prepared(
        lambda x, i: unpool(x, i, 2, stride, output_size=list(shape[2:])),
        values,
        where.numpy(),
        differentiate=(0,),
        batch=(0, 1),
    )


@operation("max_unpool1d", documented=("torch.nn.MaxUnpool1d",), overlap=(False, True))
def max_unpool1d(draw, overlap):
    return unpooled(draw, 1, overlap)


@operation("max_unpool2d", documented=("torch.nn.MaxUnpool2d",), overlap=(False, True))
def max_unpool2d(draw, overlap):
    return unpooled(draw, 2, overlap)


@operation("max_unpool3d", documented=("torch.nn.MaxUnpool3d",), overlap=(False, True))
def max_unpool3d(draw, overlap):
    return unpooled(draw, 3, overlap)
