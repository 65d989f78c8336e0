"""Matrices for the tests of sparse kernels, and the explicit order of a row."""

import numpy as np

from kernels.sparse import Csr


def matrix(lengths, columns, dtype=np.float64, seed=0, decades=9, rows=None) -> Csr:
    """Rows of these lengths with entries of many magnitudes, half of which cancel their neighbours."""
    rng = np.random.default_rng(seed)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    nnz = int(indptr[-1])
    data = rng.standard_normal(nnz) * 10.0 ** rng.integers(-decades, decades + 1, nnz)
    indices = rng.integers(0, max(columns, 1), nnz).astype(np.int32)
    again = np.flatnonzero(rng.random(nnz) < 0.25)
    again = again[again > 0]
    data[again], indices[again] = -data[again - 1], indices[again - 1]
    return Csr(indptr, indices, data.astype(dtype), columns, rows)


def hard(dtype=np.float64, seed=0) -> Csr:
    """Rows of length 0 ... 100 in any order, one of 20 000, and numbers from the ends of the range."""
    rng = np.random.default_rng(seed)
    lengths = np.concatenate([np.arange(101), rng.integers(0, 9, 500), [20_000]])
    rng.shuffle(lengths)
    a = matrix(lengths, 700, dtype, seed)
    ends = [np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max, -0.0, 0.0, np.finfo(dtype).tiny]
    a.data[rng.integers(0, a.nnz, 200)] = rng.choice(np.array(ends + [-v for v in ends], dtype), 200)
    return a


def vector(n, dtype=np.float64, seed=1) -> np.ndarray:
    """Numbers of several magnitudes, some subnormal, some -0.0."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n) * 10.0 ** rng.integers(-5, 6, n)
    x[rng.random(n) < 0.05] = -0.0
    x = x.astype(dtype)
    x[rng.random(n) < 0.05] = 3 * np.finfo(dtype).smallest_subnormal
    return x


def lanes(data, values, begin, end):
    """The sum of entries begin ... end - 1 as the order `csr` states it, number by number."""
    lane = [data.dtype.type(0)] * 4
    with np.errstate(all="ignore"):
        for e in range(begin, end):
            lane[(e - begin) % 4] += data[e] * values[e]
        return (lane[0] + lane[2]) + (lane[1] + lane[3])


def box(nz, ny, nx, dtype=np.float64) -> Csr:
    """27 points, 26 on the diagonal and -1 beside it, in the natural order."""
    z, y, x = np.meshgrid(np.arange(nz), np.arange(ny), np.arange(nx), indexing="ij")
    near = [(a, b, c) for a in (-1, 0, 1) for b in (-1, 0, 1) for c in (-1, 0, 1)]
    columns, inside = [], []
    for a, b, c in near:
        at = z + a, y + b, x + c
        inside.append(np.all([(i >= 0) & (i < n) for i, n in zip(at, (nz, ny, nx), strict=True)], axis=0))
        columns.append((at[0] * ny + at[1]) * nx + at[2])
    inside = np.stack(inside, -1).reshape(-1, 27)
    columns = np.stack(columns, -1).reshape(-1, 27)
    data = np.where(columns == np.arange(len(columns))[:, None], 26.0, -1.0)
    indptr = np.concatenate([[0], np.cumsum(inside.sum(1))]).astype(np.int64)
    return Csr(indptr, columns[inside].astype(np.int32), data[inside].astype(dtype), len(columns))
