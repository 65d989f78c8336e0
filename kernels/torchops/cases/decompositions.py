"""Decompositions and solutions of dense systems; on a CPU by LAPACK."""

import torch

from kernels.torchops.cases.operation import operation, prepared

EDGES = (32, 200)


def well(draw, edge: int, symmetric: bool = False):
    """A well-conditioned matrix, float64 (edge, edge); `symmetric`: symmetric and positive definite."""
    a = draw.normal((edge, edge), "float64", 1.0 / edge**0.5)
    if symmetric:
        a = a @ a.T
    a[range(edge), range(edge)] += 3.0
    return a


@operation("solve", edge=EDGES)
def solve(draw, edge):
    return prepared(
        torch.linalg.solve, well(draw, edge), draw.normal((edge, 8), "float64"), differentiate=(0, 1)
    )


@operation("inv", edge=EDGES)
def inv(draw, edge):
    return prepared(torch.linalg.inv, well(draw, edge), differentiate=(0,))


@operation("det", edge=(32,))
def det(draw, edge):
    return prepared(torch.linalg.slogdet, well(draw, edge), differentiate=(0,))


@operation("cholesky", edge=EDGES)
def cholesky(draw, edge):
    return prepared(torch.linalg.cholesky, well(draw, edge, symmetric=True), differentiate=(0,))


@operation("qr", edge=EDGES)
def qr(draw, edge):
    return prepared(torch.linalg.qr, well(draw, edge), differentiate=(0,))


@operation("svd", directions=("forward",), edge=EDGES)
def svd(draw, edge):
    return prepared(torch.linalg.svd, well(draw, edge))


@operation("svdvals", edge=EDGES)
def svdvals(draw, edge):
    return prepared(torch.linalg.svdvals, well(draw, edge), differentiate=(0,))


@operation("eigh", directions=("forward",), edge=EDGES)
def eigh(draw, edge):
    return prepared(torch.linalg.eigh, well(draw, edge, symmetric=True))


@operation("lstsq", directions=("forward",), edge=EDGES)
def lstsq(draw, edge):
    return prepared(
        lambda a, b: torch.linalg.lstsq(a, b).solution, well(draw, edge), draw.normal((edge, 4), "float64")
    )


@operation("matrix_exp", edge=(8, 64))
def matrix_exp(draw, edge):
    return prepared(torch.matrix_exp, well(draw, edge), differentiate=(0,))
