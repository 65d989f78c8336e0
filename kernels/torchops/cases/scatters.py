"""Operations that add or write at the places of an index, where several elements may have one place.

`ratio`: places of the result per element of the input, as in arXiv 2408.05148; a smaller ratio gives more collisions.
"""

import torch

from kernels.torchops.cases.operation import operation, prepared

FLOATS = ("float32", "float64")
RATIOS = (0.1, 0.5, 1.0)
VECTOR, MATRIX = (50_000,), (500, 100)


def bins_of(shape, ratio: float) -> int:
    """The number of places along the first axis."""
    return max(1, int(ratio * shape[0]))


@operation("index_add", documented=("torch.index_add",), shape=(VECTOR, MATRIX), ratio=RATIOS, dtype=FLOATS)
def index_add(draw, shape, ratio, dtype):
    bins = bins_of(shape, ratio)
    x, source = draw.normal((bins, *shape[1:]), dtype), draw.normal(shape, dtype)
    return prepared(
        lambda x, i, s: x.index_add(0, i, s), x, draw.index(shape[0], bins), source, differentiate=(0, 2)
    )


@operation(
    "scatter_add",
    documented=("torch.Tensor.scatter_add_",),
    shape=(VECTOR, MATRIX),
    ratio=RATIOS,
    dtype=FLOATS,
)
def scatter_add(draw, shape, ratio, dtype):
    bins = bins_of(shape, ratio)
    x, source = draw.normal((bins, *shape[1:]), dtype), draw.normal(shape, dtype)
    return prepared(
        lambda x, i, s: x.scatter_add(0, i, s), x, draw.index(shape, bins), source, differentiate=(0, 2)
    )


@operation(
    "scatter_reduce",
    documented=("torch.Tensor.scatter_reduce",),
    shape=(VECTOR, MATRIX),
    ratio=(0.1, 1.0),
    reduce=("sum", "mean", "prod", "amax"),
)
def scatter_reduce(draw, shape, ratio, reduce):
    bins = bins_of(shape, ratio)
    x, source = draw.positive((bins, *shape[1:])), draw.positive(shape)
    return prepared(
        lambda x, i, s: x.scatter_reduce(0, i, s, reduce),
        x,
        draw.index(shape, bins),
        source,
        differentiate=(0, 2),
    )


@operation(
    "scatter",
    documented=("torch.Tensor.scatter",),
    directions=("forward",),
    shape=(VECTOR, MATRIX),
    ratio=RATIOS,
)
def scatter(draw, shape, ratio):
    bins = bins_of(shape, ratio)
    x, source = draw.normal((bins, *shape[1:])), draw.normal(shape)
    return prepared(lambda x, i, s: x.scatter(0, i, s), x, draw.index(shape, bins), source)


@operation(
    "index_put",
    documented=("torch.Tensor.index_put",),
    shape=(VECTOR, MATRIX),
    ratio=RATIOS,
    dtype=FLOATS,
    accumulate=(False, True),
)
def index_put(draw, shape, ratio, dtype, accumulate):
    bins = bins_of(shape, ratio)
    x, values = draw.normal((bins, *shape[1:]), dtype), draw.normal(shape, dtype)
    return prepared(
        lambda x, i, v: x.index_put((i,), v, accumulate=accumulate),
        x,
        draw.index(shape[0], bins),
        values,
        differentiate=(0, 2),
    )


@operation(
    "put_",
    documented=("torch.Tensor.put_",),
    shape=(VECTOR, MATRIX),
    ratio=RATIOS,
    accumulate=(False, True),
)
def put(draw, shape, ratio, accumulate):
    x, values = draw.normal((bins_of(shape, ratio), *shape[1:])), draw.normal(shape)
    return prepared(
        lambda x, i, v: x.clone().put_(i, v, accumulate=accumulate),
        x,
        draw.index(shape, x.size),
        values,
        differentiate=(2,),
    )


@operation("index_copy", documented=("torch.Tensor.index_copy",), shape=(VECTOR, MATRIX), ratio=RATIOS)
def index_copy(draw, shape, ratio):
    bins = bins_of(shape, ratio)
    x, source = draw.normal((bins, *shape[1:])), draw.normal(shape)
    return prepared(
        lambda x, i, s: x.index_copy(0, i, s), x, draw.index(shape[0], bins), source, differentiate=(2,)
    )


@operation("index_reduce", directions=("forward",), shape=(VECTOR, MATRIX), reduce=("mean", "prod"))
def index_reduce(draw, shape, reduce):
    bins = bins_of(shape, 0.1)
    x, source = draw.positive((bins, *shape[1:])), draw.positive(shape)
    return prepared(lambda x, i, s: x.index_reduce(0, i, s, reduce), x, draw.index(shape[0], bins), source)


@operation("bincount", documented=("torch.bincount",), directions=("forward",), weights=(False, True))
def bincount(draw, weights):
    index, each = draw.index(50_000, 1000), draw.normal(50_000, "float64")
    if weights:
        return prepared(lambda i, w: torch.bincount(i, w), index, each)
    return prepared(lambda i: torch.bincount(i), index)


@operation("histc", documented=("torch.histc",), directions=("forward",), count=(1000, 100_000))
def histc(draw, count):
    return prepared(lambda x: torch.histc(x, 100, -3.0, 3.0), draw.normal(count))


@operation("masked_scatter", directions=("forward",), shape=(VECTOR, MATRIX))
def masked_scatter(draw, shape):
    return prepared(
        lambda x, m, s: x.masked_scatter(m, s),
        draw.normal(shape),
        draw.binary(shape, 0.5),
        draw.normal(shape),
    )


@operation("segment_reduce", reduce=("sum", "mean"), shape=(VECTOR, MATRIX))
def segment_reduce(draw, reduce, shape):
    lengths = draw.index(100, 2 * shape[0] // 100)
    lengths[-1] += max(0, shape[0] - lengths.sum())
    data = draw.normal((lengths.sum(), *shape[1:]))
    return prepared(
        lambda x, n: torch.segment_reduce(x, reduce, lengths=n, unsafe=True),
        data,
        lengths,
        differentiate=(0,),
    )
