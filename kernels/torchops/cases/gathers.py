"""Operations that read at the places of an index: their gradients are scatter-adds."""

import torch
from torch.nn.functional import embedding, embedding_bag

from kernels.torchops.cases.operation import operation, prepared

FLOATS = ("float32", "float64")
VECTOR, MATRIX = (50_000,), (500, 100)
RATIOS = (0.1, 1.0)


def table(draw, shape, ratio, dtype="float32"):
    """A table to read from, with `ratio` * shape[0] rows."""
    return draw.normal((max(1, int(ratio * shape[0])), *shape[1:]), dtype)


@operation("gather", documented=("torch.gather",), shape=(VECTOR, MATRIX), ratio=RATIOS, dtype=FLOATS)
def gather(draw, shape, ratio, dtype):
    x = table(draw, shape, ratio, dtype)
    return prepared(lambda x, i: x.gather(0, i), x, draw.index(shape, len(x)), differentiate=(0,))


@operation(
    "index_select", documented=("torch.index_select",), shape=(VECTOR, MATRIX), ratio=RATIOS, dtype=FLOATS
)
def index_select(draw, shape, ratio, dtype):
    x = table(draw, shape, ratio, dtype)
    return prepared(lambda x, i: x.index_select(0, i), x, draw.index(shape[0], len(x)), differentiate=(0,))


@operation("take", shape=(VECTOR, MATRIX), ratio=RATIOS, dtype=FLOATS)
def take(draw, shape, ratio, dtype):
    x = table(draw, shape, ratio, dtype)
    return prepared(lambda x, i: x.take(i), x, draw.index(shape, x.size), differentiate=(0,))


@operation("take_along_dim", shape=(VECTOR, MATRIX), ratio=(0.1,))
def take_along_dim(draw, shape, ratio):
    x = table(draw, shape, ratio)
    return prepared(lambda x, i: x.take_along_dim(i, 0), x, draw.index(shape, len(x)), differentiate=(0,))


@operation(
    "x[list]", documented=("torch.Tensor.__getitem__",), shape=(VECTOR, MATRIX), ratio=RATIOS, dtype=FLOATS
)
def getitem(draw, shape, ratio, dtype):
    x = table(draw, shape, ratio, dtype)
    return prepared(lambda x, i: x[[i]], x, draw.index(shape[0], len(x)), differentiate=(0,))


@operation("repeat_interleave", documented=("torch.repeat_interleave",), shape=((10_000,), (1000, 10)))
def repeat_interleave(draw, shape):
    counts = draw.index(shape[0], 20)
    return prepared(lambda x, n: x.repeat_interleave(n, 0), draw.normal(shape), counts, differentiate=(0,))


@operation("embedding", words=(100, 10_000), tokens=((64, 100),))
def embedding_(draw, words, tokens):
    return prepared(
        lambda w, i: embedding(i, w), draw.normal((words, 64)), draw.index(tokens, words), differentiate=(0,)
    )


@operation(
    "embedding_bag", documented=("torch.nn.EmbeddingBag",), mode=("sum", "mean", "max"), words=(100, 10_000)
)
def embedding_bag_(draw, mode, words):
    return prepared(
        lambda w, i: embedding_bag(i, w, mode=mode),
        draw.normal((words, 64)),
        draw.index((64, 100), words),
        differentiate=(0,),
    )


@operation("masked_select", shape=(VECTOR, MATRIX))
def masked_select(draw, shape):
    return prepared(
        lambda x, m: x.masked_select(m), draw.normal(shape), draw.binary(shape, 0.5), differentiate=(0,)
    )


@operation("expand", rows=(1000, 10_000))
def expand(draw, rows):
    return prepared(lambda x: x.expand(rows, 16).clone(), draw.normal((1, 16)), differentiate=(0,))


@operation("unfold", size=(3, 8))
def unfold(draw, size):
    return prepared(
        lambda x: torch.nn.functional.unfold(x, size),
        draw.normal((16, 2, 24, 24)),
        differentiate=(0,),
        batch=(0,),
    )


@operation("fold", size=(3, 8))
def fold(draw, size):
    places = (25 - size) ** 2
    return prepared(
        lambda x: torch.nn.functional.fold(x, (24, 24), size),
        draw.normal((16, 2 * size * size, places)),
        differentiate=(0,),
        batch=(0,),
    )
