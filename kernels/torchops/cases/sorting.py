"""Sorting and selection of elements with ties."""

import torch

from kernels.torchops.cases.operation import operation, prepared


def ties(draw, shape):
    """Few distinct numbers, so that many are equal."""
    return draw.index(shape, 50).astype("float32")


@operation("sort", stable=(False, True), count=(1000, 100_000))
def sort(draw, stable, count):
    return prepared(lambda x: torch.sort(x, stable=stable), ties(draw, count), differentiate=(0,))


@operation("topk", directions=("forward",), count=(1000, 100_000))
def topk(draw, count):
    return prepared(lambda x: torch.topk(x, 100), ties(draw, count))


@operation("median", documented=("torch.median",), indices=(False, True))
def median(draw, indices):
    x = ties(draw, (64, 1001))
    if indices:
        return prepared(lambda x: torch.median(x, 1), x, differentiate=(0,), batch=(0,))
    return prepared(lambda x: torch.median(x), x, differentiate=(0,))


@operation("kthvalue", k=(10, 500))
def kthvalue(draw, k):
    return prepared(lambda x: torch.kthvalue(x, k), ties(draw, (64, 1001)), differentiate=(0,), batch=(0,))


@operation("unique", directions=("forward",), count=(1000, 100_000))
def unique(draw, count):
    return prepared(lambda x: torch.unique(x, return_inverse=True, return_counts=True), ties(draw, count))


@operation("argmax", directions=("forward",), count=(1000, 100_000))
def argmax(draw, count):
    return prepared(torch.argmax, ties(draw, count))
