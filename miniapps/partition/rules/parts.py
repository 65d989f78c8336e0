"""The suite's own operations (`partition.NAME`), which `planning.smaller` puts in the place of others.

They get the places of their part of a dim as an operand, `rows`; so this dim may be cut."""

from collections.abc import Sequence

from miniapps.partition.cuts.steps import SPAN
from miniapps.partition.graphs.graph import Node, Tensor
from miniapps.partition.rules.factors import CONTRACTING, NORMALISING, Reach, Rule, labelled
from miniapps.partition.rules.lookup import at_rows, indexed
from miniapps.partition.rules.shape import create


def places(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """partition.places(x, dim, size, scale, offset, wrap): the result reads a place of x for each of its places."""
    _, dim, _, scale, offset, wrap = node.args
    dims = range(len(tensors[0].shape))
    reach = Reach(dim, 0, 0, True, 1, scale, 1, -offset, False, wrap)
    return labelled(node, tensors, [dims], [dims], "view", reaches=(reach,))


def index_at(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """partition.index_at(x, indices, rows, sizes): a sum over dims with rows, whose parts have other elements."""
    own, read, dims, whole = of_indices(node.args[1], node.args[2], tensors)
    return labelled(node, tensors, [own, *read], [dims], "lookup", whole=whole, priority=NORMALISING)


def index_put_at(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """partition.index_put_at(x, indices, values, accumulate, rows, sizes): each part takes what is its own."""
    own, (*read, rows), dims, whole = of_indices(node.args[1], node.args[4], tensors)
    values = dims[len(dims) - len(tensors[1 + len(read)].shape) :]
    whole += [label for label in dims if isinstance(label, str)]
    return labelled(
        node, tensors, [own, *read, values, rows], [own], "scatter", whole=whole, priority=NORMALISING
    )


def of_indices(indices: Sequence, rows: Sequence, tensors: Sequence[Tensor]):
    """Returns (labels of x, labels of indices and rows, labels of x[indices], labels that are whole)."""
    count = sum(i is not None for i in indices)
    rank = len(tensors[0].shape)
    dims, read, _ = indexed(rank, indices, tensors[1 : 1 + count])
    read += [[d] for d, of in enumerate(rows) if of is not None]
    whole = [d for d, (i, of) in enumerate(zip(indices, rows, strict=True)) if i is not None and of is None]
    return range(rank), read, dims, whole


def embedding_gradient_at(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """partition.embedding_gradient_at(gradient, indices, rows, size, padding): a sum over the places of indices."""
    places_of = [f"i{d}" for d in range(len(tensors[1].shape))]
    return labelled(
        node, tensors, [[*places_of, "column"], places_of, ["row"]], [["row", "column"]], "scatter",
        priority=NORMALISING, fill=0.0, linear=(frozenset({0}),),
    )  # fmt: skip


def gather_at(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """partition.gather_at(x, dim, index, rows, size): a sum over the parts of dim, of which one has each element."""
    return at_rows(node, tensors, node.args[1], "lookup", with_rows=True)


def scatter_at(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """partition.scatter_at(x, dim, index, source, rows, size, add): each part takes what is its own."""
    return at_rows(node, tensors, node.args[1], "scatter", with_rows=True)


def scan(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """partition.scan_blocks(x, rows, dim, starts), and scan_after(x, before, rows, dim, starts)."""
    rank, dim = len(tensors[0].shape), node.args[-2]
    before = [["block" if d == dim else d for d in range(rank)]] * (len(tensors) - 2)
    return labelled(
        node, tensors, [range(rank), *before, [dim]], [range(rank)], "rowwise", whole=["block"],
        priority=NORMALISING,
    )  # fmt: skip


def scan_before(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """partition.scan_before(x, rows, dim, starts): a sum over the blocks of dim."""
    rank, dim = len(tensors[0].shape), node.args[-2]
    result = ["block" if d == dim else d for d in range(rank)]
    return labelled(
        node, tensors, [range(rank), [dim]], [result], "rowwise", whole=["block"], priority=NORMALISING
    )


def pool(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """partition.pool_max(x, kernel, stride, dilation) and pool_which; pool_max_gradient(gradient, which, ...): windows
    without padding."""
    kernel, stride, dilation = node.args[len(tensors) : len(tensors) + 3]
    rank = len(tensors[0].shape)
    first = rank - len(kernel)
    reaches = [
        Reach(first + d, operand, 0, True, kernel[d], stride[d], dilation[d], 0, len(tensors) > 1)
        for operand in range(len(tensors))
        for d in range(len(kernel))
    ]
    dims = range(rank)
    return labelled(
        node, tensors, [dims] * len(tensors), [dims], "rowwise", priority=NORMALISING, reaches=tuple(reaches),
    )  # fmt: skip


def span(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """partition.span(tensors, dim, begin, end): the places [begin, end) of a dim, of which the results have all on the
    ranks that read them."""
    rank, dim = len(tensors[0].shape), node.args[1]
    result = ["part" if d == dim else d for d in range(rank)]
    return labelled(
        node, tensors, [range(rank)] * len(tensors), [result] * len(tensors), SPAN, whole=["part"],
        priority=NORMALISING,
    )  # fmt: skip


def put_span(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """partition.put_span(base or None, part, rows, dim, begin): each place of the dim from `part`, else from `base`."""
    rank, dim = len(node.results[0].shape), node.args[3]
    part = ["part" if d == dim else d for d in range(rank)]
    base = [range(rank)] * (len(tensors) - 2)
    return labelled(
        node, tensors, [*base, part, [dim]], [range(rank)], "lookup", whole=["part"], priority=NORMALISING
    )


def attention_step(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """partition.attention_step(q, k, v, out, logs, rows, begin, end, causal, scale): samples, heads and queries may be
    cut; k and v are one block. attention_step_backward(gradient, q, k, v, out, logs, rows, begin, end, causal, scale)
    sums over queries."""
    read, made = ["bhqd", "bhkd", "bhkd"], ["bhqd", "bhq"]
    if "backward" in node.target:
        read, made = ["bhqd", *read], ["bhqd", "bhkd", "bhkd"]
    read += ["bhqd", "bhq"] if len(tensors) > len(read) + 1 else []
    return labelled(
        node, tensors, [*read, "q"], made, "rowwise", whole="kd", priority=CONTRACTING, fill=0.0,
        reason="a block of keys and values is whole",
    )  # fmt: skip


RULES = {
    "span": span,
    "put_span": put_span,
    **dict.fromkeys(("attention_step", "attention_step_backward"), attention_step),
    "rows": create,
    "places": places,
    "index_at": index_at,
    "index_put_at": index_put_at,
    "embedding_gradient_at": embedding_gradient_at,
    "gather_at": gather_at,
    "scatter_at": scatter_at,
    **dict.fromkeys(("scan_blocks", "scan_after"), scan),
    "scan_before": scan_before,
    **dict.fromkeys(("pool_max", "pool_which", "pool_max_gradient"), pool),
}
