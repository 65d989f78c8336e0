"""Sums and functions of sums: over all elements, along rows, along columns."""

import torch

from kernels.torchops.cases.operation import operation, prepared

FLOATS = ("float32", "float64")
DIMS = ("all", 0, 1)
SHAPE = (64, 1500)


def reduced(draw, function, dim, dtype="float32", shape=SHAPE, strided=False):
    """`function(x, dim)` over all elements or along an axis; along the last axis, rows are samples. `strided`: the
    matrix is a transposed view."""
    if strided:
        matrix = draw.normal(shape[::-1], dtype)
        if dim == "all":
            return prepared(lambda x: function(x.T, (0, 1)), matrix, differentiate=(0,))
        return prepared(lambda x: function(x.T, dim), matrix, differentiate=(0,))
    if dim == "all":
        return prepared(lambda x: function(x.flatten(), 0), draw.normal(shape, dtype), differentiate=(0,))
    batch = (0,) if dim == 1 else ()
    return prepared(lambda x: function(x, dim), draw.normal(shape, dtype), differentiate=(0,), batch=batch)


@operation("sum", dim=DIMS, dtype=("float32", "float64", "bfloat16"), strided=(False, True))
def sum_(draw, dim, dtype, strided):
    return reduced(draw, torch.sum, dim, dtype, strided=strided)


@operation("mean", dim=DIMS, dtype=FLOATS, strided=(False, True))
def mean(draw, dim, dtype, strided):
    return reduced(draw, torch.mean, dim, dtype, strided=strided)


@operation("prod", directions=("forward",), dim=DIMS)
def prod(draw, dim):
    def function(x, dim):
        return (1.0 + x / 4096.0).prod(dim)

    return reduced(draw, function, dim)


@operation("var", dim=DIMS)
def var(draw, dim):
    return reduced(draw, lambda x, dim: x.var(dim), dim)


@operation("std", dim=DIMS)
def std(draw, dim):
    return reduced(draw, lambda x, dim: x.std(dim), dim)


@operation("norm", dim=DIMS)
def norm(draw, dim):
    return reduced(draw, lambda x, dim: torch.linalg.vector_norm(x, dim=dim), dim)


@operation("logsumexp", dim=DIMS)
def logsumexp(draw, dim):
    return reduced(draw, torch.logsumexp, dim)


@operation("nansum", directions=("forward",), dim=DIMS)
def nansum(draw, dim):
    return reduced(draw, torch.nansum, dim)


@operation("amax", dim=DIMS)
def amax(draw, dim):
    return reduced(draw, torch.amax, dim)


@operation("cumsum", documented=("torch.cumsum",), dim=(0, 1), dtype=FLOATS)
def cumsum(draw, dim, dtype):
    return reduced(draw, torch.cumsum, dim, dtype)


@operation("cumprod", directions=("forward",), dim=(0, 1))
def cumprod(draw, dim):
    return reduced(draw, lambda x, dim: (1.0 + x / 4096.0).cumprod(dim), dim)


@operation("trapezoid", directions=("forward",), dim=(0, 1))
def trapezoid(draw, dim):
    return reduced(draw, lambda x, dim: torch.trapezoid(x, dim=dim), dim)


@operation("layer_norm", width=(16, 1000))
def layer_norm(draw, width):
    return prepared(
        lambda x, w, b: torch.nn.functional.layer_norm(x, (width,), w, b),
        draw.normal((512, width)),
        draw.normal(width),
        draw.normal(width),
        differentiate=(0, 1, 2),
        batch=(0,),
    )


@operation("batch_norm", channels=(4, 64))
def batch_norm(draw, channels):
    return prepared(
        lambda x, w, b: torch.nn.functional.batch_norm(x, None, None, w, b, training=True),
        draw.normal((32, channels, 16, 16)),
        draw.normal(channels),
        draw.normal(channels),
        differentiate=(0, 1, 2),
    )


@operation("group_norm", channels=(8, 64))
def group_norm(draw, channels):
    return prepared(
        lambda x, w, b: torch.nn.functional.group_norm(x, 4, w, b),
        draw.normal((64, channels, 16, 16)),
        draw.normal(channels),
        draw.normal(channels),
        differentiate=(0, 1, 2),
        batch=(0,),
    )


@operation("softmax", width=(10, 1000))
def softmax(draw, width):
    return prepared(lambda x: torch.softmax(x, 1), draw.normal((512, width)), differentiate=(0,), batch=(0,))
