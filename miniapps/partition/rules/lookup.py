"""Lookups of rows by indices, and additions to rows at indices. The indexed dim is whole."""

from collections.abc import Sequence

from miniapps.partition.graphs.graph import Node, Tensor
from miniapps.partition.rules.factors import NORMALISING, Rule, all_whole, labelled

TABLE = "rows that indices point to are whole"


def embedding(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """(rows, columns), indices -> (indices, columns)."""
    places = [f"i{d}" for d in range(len(tensors[1].shape))]
    return labelled(
        node, tensors, [["row", "column"], places], [[*places, "column"]], "lookup", parted=["row"],
        priority=NORMALISING, reason=TABLE,
    )  # fmt: skip


def embedding_gradient(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """(indices, columns), indices -> (rows, columns): a sum over the places of the indices."""
    if len(node.args) > 4 and node.args[4]:
        return all_whole(node, tensors, "scaled by how often an index occurs", "scatter")
    places = [f"i{d}" for d in range(len(tensors[1].shape))]
    return labelled(
        node, tensors, [[*places, "column"], places], [["row", "column"]], "scatter", parted=["row"],
        priority=NORMALISING, fill=0.0, linear=(frozenset({0}),), reason=TABLE,
    )  # fmt: skip


def index_select(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """Rows of dim `dim`, by a vector of indices."""
    rank = len(tensors[0].shape)
    dim = node.args[1] % rank
    dims = list(range(rank))
    result = ["i" if d == dim else d for d in dims]
    return labelled(
        node, tensors, [dims, ["i"]], [result], "lookup", parted=[dim], priority=NORMALISING, reason=TABLE
    )


def at_indices(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """gather, scatter, scatter_add: `dim` is whole; the others may be cut if all tensors have the same size there."""
    rank = len(node.results[0].shape)
    if any(len(tensor.shape) != rank for tensor in tensors):
        return all_whole(node, tensors, "tensors of another rank", "lookup")
    kernel = "scatter" if "scatter" in node.target else "lookup"
    return at_rows(node, tensors, node.args[1] % rank, kernel)


def at_rows(node: Node, tensors: Sequence[Tensor], dim: int, kernel: str, with_rows: bool = False) -> Rule:
    """The rule of x and other tensors with its dims, of which the second has indices into `dim`; `with_rows`: the last
    operand has the places of dim `dim` of x."""
    rank = len(node.results[0].shape)
    others = tensors[: len(tensors) - with_rows]
    shapes = [tensor.shape for tensor in (*others, *node.results)]
    whole, labels = [], []
    for k, shape in enumerate(shapes):
        own: list = []
        for d in range(rank):
            label: tuple = (d,)
            if d == dim:
                of_x = k == 0 or (kernel == "scatter" and k == len(others))
                label = ("row",) if of_x else ("chosen",)
            elif any(other[d] != shape[d] for other in shapes):
                label = (("other", k, d),)
                whole.append(label[0])
            own.append(label)
        labels.append(own)
    rows = [[("row",)]] if with_rows else []
    return labelled(
        node, tensors, [*labels[: len(others)], *rows], labels[len(others) :], kernel, whole=[*whole, "chosen"],
        parted=() if with_rows else ["row"], priority=NORMALISING, reason=f"indices point into dim {dim}",
    )  # fmt: skip


def index(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """x[:, i, j]: dims with an index are whole; other dims and the broadcast dims of the indices may be cut."""
    x, indices = tensors[0], node.args[1]
    count = sum(i is not None for i in indices)
    dims, read, _ = indexed(len(x.shape), indices, tensors[1 : 1 + count])
    whole = [d for d, i in enumerate(indices) if i is not None]
    return labelled(
        node, tensors, [range(len(x.shape)), *read], [dims], "lookup", parted=whole, priority=NORMALISING,
        reason=TABLE,
    )  # fmt: skip


def index_put(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """x[:, i, j] = values: only dims without an index may be cut, because an index may point anywhere."""
    x, indices = tensors[0], node.args[1]
    count = sum(i is not None for i in indices)
    dims, read, behind = indexed(len(x.shape), indices, tensors[1 : 1 + count])
    pointed = [d for d, i in enumerate(indices) if i is not None]
    values = dims[len(dims) - len(tensors[-1].shape) :]
    own = range(len(x.shape))
    return labelled(
        node, tensors, [own, *read, values], [own], "scatter", whole=behind, parted=pointed,
        priority=NORMALISING, reason=TABLE,
    )  # fmt: skip


def indexed(rank: int, indices: Sequence, tensors: Sequence[Tensor]):
    """Returns (labels of x[indices], labels of each index, labels of the broadcast indices)."""
    wide = max(len(tensor.shape) for tensor in tensors)
    behind = [f"i{d}" for d in range(wide)]
    read = [behind[wide - len(tensor.shape) :] for tensor in tensors]
    places = [d for d, i in enumerate(indices) if i is not None]
    dims: list = [d for d in range(rank) if d not in places]
    # NumPy's rule: adjacent indices put their dims in their place, others in front.
    at = places[0] if places == list(range(places[0], places[-1] + 1)) else 0
    dims[at:at] = behind
    return dims, read, behind


RULES = {
    "embedding": embedding,
    "embedding_dense_backward": embedding_gradient,
    "index_select": index_select,
    **dict.fromkeys(("index", "_unsafe_index"), index),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), index_put),
    **dict.fromkeys(("gather", "scatter", "scatter_add"), at_indices),
}
