"""Sums, extremes, and operations on whole rows: softmax, layer norm, scans, choices of the largest."""

from collections.abc import Sequence
from math import inf

from miniapps.partition.graphs.graph import Node, Tensor
from miniapps.partition.graphs.simplify import operation
from miniapps.partition.rules import pointwise
from miniapps.partition.rules.factors import NORMALISING, Rule, labelled
from miniapps.partition.rules.shape import along

COMBINED = {
    "sum": ("sum", 0.0),
    "amax": ("max", -inf),
    "amin": ("min", inf),
}  # (combination of partials, padding)


def reduce(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """Sums and extremes: a cut of a reduced dim gives partial results."""
    x, dims, keep = tensors[0], node.args[1], node.args[2]
    rank = len(x.shape)
    kept = range(rank) if keep else [d for d in range(rank) if d not in dims]
    combine, fill = COMBINED[operation(node.target)]
    # The sum of partial sums over other dims is the partial sum.
    linear = (frozenset({0}),) if combine == "sum" and x.dtype == node.results[0].dtype else ()
    kernel = "rowsum" if combine == "sum" else "rowwise"
    return labelled(node, tensors, [range(rank)], [kept], kernel, combine=combine, fill=fill, linear=linear)


def softmax(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """The normalised dim is whole; in the backward pass it is the argument after two tensors."""
    dim = node.args[len(tensors)]
    why = f"dim {dim} is normalised"
    return along(node, tensors, dim, "rowwise", why, True, priority=NORMALISING)


def scan(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """The scanned dim is whole; only sums are parted, products and logarithms are not."""
    dim = node.args[1] if len(node.args) > 1 else 0
    parted = operation(node.target) == "cumsum"
    return along(node, tensors, dim, "rowwise", f"dim {dim} is scanned", parted, priority=NORMALISING)


def choose(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """argmax and the like: the dims of the choice are whole."""
    rank = len(tensors[0].shape)
    dim, keep = (*node.args[1:], None, False)[:2] if len(node.args) < 3 else node.args[1:3]
    chosen = list(range(rank)) if dim is None else [dim % rank]
    kept = range(rank) if keep else [d for d in range(rank) if d not in chosen]
    return labelled(
        node, tensors, [range(rank)], [kept] * len(node.results), "rowwise", whole=chosen,
        priority=NORMALISING, reason="the largest of whole rows is chosen",
    )  # fmt: skip


def largest(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """max and min: elementwise for two tensors, else like argmax."""
    return pointwise.rule(node, tensors) if len(tensors) == 2 else choose(node, tensors)


def of_rows(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """logsumexp, prod, all, any: the reduced dims are whole."""
    rank = len(tensors[0].shape)
    dims = node.args[1] if len(node.args) > 1 and node.args[1] is not None else range(rank)
    taken = [d % rank for d in ((dims,) if isinstance(dims, int) else dims)]
    keep = len(node.args) > 2 and bool(node.args[2])
    kept = range(rank) if keep else [d for d in range(rank) if d not in taken]
    parted = taken if operation(node.target) == "logsumexp" else ()
    return labelled(
        node, tensors, [range(rank)], [kept], "rowwise", whole=taken, parted=parted, priority=NORMALISING,
        reason="rows are taken together",
    )  # fmt: skip


def sort(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """topk and sort: the sorted dim is whole in operand and results."""
    rank = len(tensors[0].shape)
    at = 2 if operation(node.target) == "topk" else 1
    dim = (node.args[at] if len(node.args) > at else -1) % rank
    after = ["chosen" if d == dim else d for d in range(rank)]
    return labelled(
        node, tensors, [range(rank)], [after] * len(node.results), "rowwise", whole=[dim, "chosen"],
        priority=NORMALISING, reason=f"dim {dim} is sorted",
    )  # fmt: skip


def layer_norm(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """Leading dims may be cut, normalised dims are whole."""
    rank = len(tensors[0].shape)
    normal = list(range(rank - len(node.args[1]), rank))
    operands = [range(rank), *[normal] * (len(tensors) - 1)]
    return labelled(
        node, tensors, operands, [range(rank)] * 3, "rowwise", parted=normal, priority=NORMALISING,
        reason="normalised dims are whole",
    )  # fmt: skip


def layer_norm_backward(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """The gradient of the operand is like forward; gradients of weight and bias are sums over the leading dims."""
    rank = len(tensors[0].shape)
    normal = list(range(rank - len(node.args[2]), rank))
    operands = [range(rank)] * 4 + [normal] * (len(tensors) - 4)
    results = [range(rank) if result.name.endswith(".0") else normal for result in node.results]
    return labelled(
        node, tensors, operands, results, "rowwise", parted=normal, priority=NORMALISING, fill=0.0,
        reason="normalised dims are whole",
    )  # fmt: skip


RULES = {
    **dict.fromkeys(COMBINED, reduce),
    **dict.fromkeys(("_softmax", "_log_softmax"), softmax),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), softmax),
    **dict.fromkeys(("cumsum", "cumprod", "logcumsumexp"), scan),
    **dict.fromkeys(("argmax", "argmin"), choose),
    **dict.fromkeys(("max", "min"), largest),
    **dict.fromkeys(("logsumexp", "prod", "all", "any"), of_rows),
    **dict.fromkeys(("topk", "sort"), sort),
    "native_layer_norm": layer_norm,
    "native_layer_norm_backward": layer_norm_backward,
}
