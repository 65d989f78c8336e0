"""Sparse matrices: products and construction."""

import torch

from kernels.torchops.cases.operation import operation, prepared

EDGE, NONZEROS = 2000, 40_000


def entries(draw):
    """Places (2, NONZEROS), with repetitions, and values."""
    return draw.index((2, NONZEROS), EDGE), draw.normal(NONZEROS)


@operation("sparse.mm", layout=("coo", "csr"))
def sparse_mm(draw, layout):
    where, values = entries(draw)

    def call(i, v, dense):
        matrix = torch.sparse_coo_tensor(i, v, (EDGE, EDGE))
        matrix = matrix.coalesce().to_sparse_csr() if layout == "csr" else matrix
        return torch.sparse.mm(matrix, dense)

    return prepared(call, where, values, draw.normal((EDGE, 16)), differentiate=(2,))


@operation("coalesce", directions=("forward",))
def coalesce(draw):
    where, values = entries(draw)
    where = where // 20  # so that many places repeat

    def call(i, v):
        return torch.sparse_coo_tensor(i, v, (EDGE, EDGE)).coalesce().values()

    return prepared(call, where, values)


@operation("bmm sparse", documented=("torch.bmm",), directions=("forward",), sparse=(True,))
def bmm_sparse(draw, sparse):
    where = draw.index((3, NONZEROS), 200) % [[4], [200], [200]]

    def call(i, v, dense):
        return torch.bmm(torch.sparse_coo_tensor(i, v, (4, 200, 200)).coalesce(), dense)

    return prepared(call, where, draw.normal(NONZEROS), draw.normal((4, 200, 16)))
