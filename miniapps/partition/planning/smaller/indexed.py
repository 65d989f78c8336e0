"""Dims that indices point into: each part looks up, or changes, its own elements."""

from __future__ import annotations

from collections.abc import Sequence

from miniapps.partition.graphs.graph import Node, Tensor
from miniapps.partition.planning.smaller.work import Cuts, Smaller


def embedding(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each part looks up its own rows."""
    table, indices = node.args[:2]
    (result,) = node.results
    return looked_up(work, table, (indices,), result, {0: cuts["row"]})


def index_select(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each part looks up its own elements."""
    x, dim, indices = node.args
    (result,) = node.results
    return looked_up(work, x, (*[None] * (dim % len(work.shape(x))), indices), result, cuts)


def index(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each part looks up its own elements; negative indices count from the end."""
    x, indices = node.args
    (result,) = node.results
    return looked_up(work, x, counted(work, x, indices, cuts), result, cuts)


def looked_up(work: Smaller, x: str, indices: Sequence, result: Tensor, cuts: Cuts) -> bool:
    """The elements of x at indices, in the dims of `cuts` by rows."""
    rows, sizes = rows_of(work, x, indices, cuts)
    work.ends(
        work.put("at", "partition.index_at", (x, tuple(indices), rows, sizes), result.shape, result.dtype),
        result,
    )
    return True


def rows_of(work: Smaller, x: str, indices: Sequence, cuts: Cuts):
    """(rows, sizes) of the dims of x that are cut and have an index, None and 0 for others."""
    shape = work.shape(x)
    cut = [cuts.get(d) if i is not None else None for d, i in enumerate(indices)]
    rows = tuple(None if own is None else work.rows(shape[d], own) for d, own in enumerate(cut))
    return rows, tuple(0 if own is None else shape[d] for d, own in enumerate(cut))


def counted(work: Smaller, x: str, indices: Sequence, cuts: Cuts) -> tuple:
    """Indices of which the negative ones in cut dims are counted from the end."""
    shape = work.shape(x)
    return tuple(
        work.where(work.apply("lt", i, 0, dtype="bool"), work.apply("add", i, shape[d], overload="Tensor"), i)
        if i is not None and d in cuts
        else i
        for d, i in enumerate(indices)
    )


def index_put(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each part takes the values that are put into it."""
    x, indices, values, accumulate = (*node.args, False)[:4]
    (result,) = node.results
    if len(cuts) > 1:
        return False
    indices = counted(work, x, indices, cuts)
    rows, sizes = rows_of(work, x, indices, cuts)
    args = (x, indices, values, accumulate, rows, sizes)
    work.ends(work.put("put", "partition.index_put_at", args, result.shape, result.dtype), result)
    return True


def embedding_gradient(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each part adds the gradients of its own rows."""
    gradient, indices, n, padding, _ = node.args
    (result,) = node.results
    args = (gradient, indices, work.rows(n, cuts["row"]), n, padding)
    work.ends(work.put("at", "partition.embedding_gradient_at", args, result.shape, result.dtype), result)
    return True


def gather(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each part gives its own elements."""
    x, dim, indices = node.args[:3]
    (result,) = node.results
    dim %= len(result.shape)
    n = work.shape(x)[dim]
    args = (x, dim, indices, work.rows(n, cuts["row"]), n)
    work.ends(work.put("at", "partition.gather_at", args, result.shape, result.dtype), result)
    return True


def scatter(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each part takes the elements that are put into it, or added to it."""
    if node.target not in ("aten.scatter.value", "aten.scatter.src", "aten.scatter_add.default"):
        return False
    x, dim, indices, source = node.args
    (result,) = node.results
    dim %= len(result.shape)
    n = work.shape(x)[dim]
    args = (x, dim, indices, source, work.rows(n, cuts["row"]), n, "add" in node.target)
    work.ends(work.put("put", "partition.scatter_at", args, result.shape, result.dtype), result)
    return True


SMALLER = {
    "embedding": embedding,
    "embedding_dense_backward": embedding_gradient,
    "index_select": index_select,
    **dict.fromkeys(("index", "_unsafe_index"), index),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), index_put),
    "gather": gather,
    **dict.fromkeys(("scatter", "scatter_add"), scatter),
}
