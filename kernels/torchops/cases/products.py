"""Products of matrices and vectors."""

import torch

from kernels.torchops.cases.operation import operation, prepared

FLOATS = ("float32", "float64")
BATCH = 64


@operation("linear", inner=(10, 64, 784), outer=(10, 128), dtype=("float32", "float64", "bfloat16"))
def linear(draw, inner, outer, dtype):
    return prepared(
        torch.nn.functional.linear,
        draw.normal((BATCH, inner), dtype),
        draw.normal((outer, inner), dtype),
        draw.normal(outer, dtype),
        differentiate=(0, 1, 2),
        batch=(0,),
    )


@operation("mm", inner=(64, 1000), dtype=FLOATS)
def mm(draw, inner, dtype):
    return prepared(
        torch.mm,
        draw.normal((BATCH, inner), dtype),
        draw.normal((inner, 96), dtype),
        differentiate=(0, 1),
        batch=(0,),
    )


@operation("bmm", documented=("torch.bmm",), inner=(16, 200))
def bmm(draw, inner):
    return prepared(
        torch.bmm,
        draw.normal((BATCH, 8, inner)),
        draw.normal((BATCH, inner, 8)),
        differentiate=(0, 1),
        batch=(0, 1),
    )


@operation("dot", count=(64, 100, 100_000), dtype=FLOATS)
def dot(draw, count, dtype):
    return prepared(torch.dot, draw.normal(count, dtype), draw.normal(count, dtype), differentiate=(0, 1))


@operation("mv", rows=(10, 1000), columns=(100, 1000))
def mv(draw, rows, columns):
    return prepared(torch.mv, draw.normal((rows, columns)), draw.normal(columns), differentiate=(0, 1))


@operation("ger", rows=(100, 1000))
def ger(draw, rows):
    return prepared(torch.outer, draw.normal(rows), draw.normal(100), differentiate=(0, 1))


@operation("einsum", equation=("bij,bjk->bik", "bi,ij,bj->b"))
def einsum(draw, equation):
    if equation == "bij,bjk->bik":
        pair = (draw.normal((BATCH, 8, 64)), draw.normal((BATCH, 64, 8)))
        return prepared(lambda *x: torch.einsum(equation, *x), *pair, differentiate=(0, 1), batch=(0, 1))
    three = (draw.normal((BATCH, 64)), draw.normal((64, 48)), draw.normal((BATCH, 48)))
    return prepared(lambda *x: torch.einsum(equation, *x), *three, differentiate=(0, 1, 2), batch=(0, 2))


@operation("bilinear", inner=(8, 64))
def bilinear(draw, inner):
    return prepared(
        torch.nn.functional.bilinear,
        draw.normal((BATCH, inner)),
        draw.normal((BATCH, 16)),
        draw.normal((8, inner, 16)),
        differentiate=(0, 1, 2),
        batch=(0, 1),
    )


@operation("cdist", width=(3, 64))
def cdist(draw, width):
    return prepared(
        torch.cdist, draw.normal((BATCH, width)), draw.normal((100, width)), differentiate=(0, 1), batch=(0,)
    )


@operation("cosine_similarity", width=(10, 1000))
def cosine_similarity(draw, width):
    return prepared(
        torch.nn.functional.cosine_similarity,
        draw.normal((BATCH, width)),
        draw.normal((BATCH, width)),
        differentiate=(0, 1),
        batch=(0, 1),
    )
