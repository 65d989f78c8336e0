"""Normalisations: sums over blocks of the normalised dims."""

from __future__ import annotations

from math import prod

from miniapps.partition.graphs.graph import Node
from miniapps.partition.graphs.simplify import operation
from miniapps.partition.planning.smaller.work import Cuts, Smaller


def softmax(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """The largest element, then a sum over blocks."""
    x, dim = node.args[:2]
    (result,) = node.results
    if work.dtype(x) != result.dtype:
        return False
    dims = (dim % len(result.shape),)
    moved = work.apply("sub", x, work.reduced("amax", x, dims))
    powers = work.apply("exp", moved)
    total = work.reduced("sum", powers, dims)
    if operation(node.target) == "_softmax":
        work.ends(work.apply("div", powers, total), result)
    else:
        work.ends(work.apply("sub", moved, work.apply("log", total)), result)
    return True


def softmax_backward(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """y (g - sum(g y)); of the logarithm g - exp(y) sum(g)."""
    gradient, y, dim = node.args[:3]
    (result,) = node.results
    if work.dtype(gradient) != result.dtype:
        return False
    dims = (dim % len(result.shape),)
    if operation(node.target) == "_softmax_backward_data":
        weighted = work.apply("mul", gradient, y)
        shared = work.apply("mul", y, work.reduced("sum", weighted, dims))
        work.ends(work.apply("sub", weighted, shared), result)
    else:
        total = work.reduced("sum", gradient, dims)
        work.ends(work.apply("sub", gradient, work.apply("mul", work.apply("exp", y), total)), result)
    return True


def logsumexp(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """log(sum(exp(x - top))) + top, for infinite `top` without it."""
    x, dims = node.args[:2]
    rank = len(work.shape(x))
    dims = tuple(sorted(d % rank for d in ((dims,) if isinstance(dims, int) else dims)))
    (result,) = node.results
    top = work.reduced("amax", x, dims)
    endless = work.apply("isinf", top, dtype="bool")
    top = work.where(endless, work.scalar(0.0, work.dtype(x)), top)
    total = work.reduced("sum", work.apply("exp", work.apply("sub", x, top)), dims)
    found = work.apply("add", work.apply("log", total), top)
    if work.shape(found) != result.shape:
        found = work.view(found, result.shape)
    work.ends(found, result)
    return True


def layer_norm(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Mean, then the mean of squared distances: two sums over blocks."""
    x, normal, weight, bias, eps = node.args
    rank = len(work.shape(x))
    dims = tuple(range(rank - len(normal), rank))
    n = prod(normal)
    results = {tensor.name.rpartition(".")[2]: tensor for tensor in node.results}

    def keep(value: str, number: str) -> str:
        if number not in results:
            return value
        work.ends(value, results[number])
        return "%" + results[number].name

    mean = keep(work.apply("div", work.reduced("sum", x, dims), n), "1")
    apart = work.apply("sub", x, mean)
    spread = work.apply("div", work.reduced("sum", work.apply("mul", apart, apart), dims), n)
    scale = keep(work.apply("rsqrt", work.apply("add", spread, eps)), "2")
    y = work.apply("mul", apart, scale)
    if weight is not None:
        y = work.apply("mul", y, weight)
    if bias is not None:
        y = work.apply("add", y, bias)
    keep(y, "0")
    return True


def layer_norm_backward(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Two sums over blocks for the gradient of x, and sums over the leading dims for those of weight and bias."""
    gradient, x, normal, mean, scale, weight, _, _ = node.args
    rank = len(work.shape(x))
    lead, dims = tuple(range(rank - len(normal))), tuple(range(rank - len(normal), rank))
    n = prod(normal)
    results = {tensor.name.rpartition(".")[2]: tensor for tensor in node.results}
    unit = work.apply("mul", work.apply("sub", x, mean), scale)
    if "0" in results:
        g = gradient if weight is None else work.apply("mul", gradient, weight)
        level = work.apply("div", work.reduced("sum", g, dims), n)
        slope = work.apply("div", work.reduced("sum", work.apply("mul", g, unit), dims), n)
        rest = work.apply("sub", work.apply("sub", g, level), work.apply("mul", unit, slope))
        work.ends(work.apply("mul", rest, scale), results["0"])
    for number, factor in (("1", unit), ("2", None)):
        if number in results:
            terms = gradient if factor is None else work.apply("mul", gradient, factor)
            if lead:
                work.ends(work.reduced("sum", terms, lead, keep=False), results[number])
            else:
                work.ends(work.apply("mul", terms, 1.0), results[number])
    return True


SMALLER = {
    **dict.fromkeys(("_softmax", "_log_softmax"), softmax),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), softmax_backward),
    "logsumexp": logsumexp,
    "native_layer_norm": layer_norm,
    "native_layer_norm_backward": layer_norm_backward,
}
