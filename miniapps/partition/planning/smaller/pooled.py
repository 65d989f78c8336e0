"""Pooled images: windows over borders that are written out."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from miniapps.partition.graphs.graph import Node
from miniapps.partition.planning.smaller.work import Cuts, Smaller
from miniapps.partition.rules.window import both, pooled

POOL, POOL_BACK = "max_pool2d_with_indices", "max_pool2d_with_indices_backward"


def beyond(n: int, m: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """The places that m windows read after n, negative for places that they do not reach."""
    return (m - 1) * stride + (kernel - 1) * dilation + 1 - n - padding


def exceeds(image, count, kernel, stride, padding) -> bool:
    """Whether windows read beyond the border of an image, by `ceil_mode`."""
    after = [beyond(*each, 1) for each in zip(image, count, kernel, stride, padding, strict=True)]
    return any(n > p for n, p in zip(after, padding, strict=True))


def borders(image, count, kernel, stride, padding, dilation) -> tuple[int, ...]:
    """The places before and after an image that windows read, as `constant_pad_nd` takes them."""
    after = [beyond(*each) for each in zip(image, count, kernel, stride, padding, dilation, strict=True)]
    return tuple(side for d in reversed(range(len(after))) for side in (padding[d], after[d]))


def max_pool(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """The largest element of each window of an image with borders, and its number in the window."""
    kernel, stride, padding, more = pooled(node, 1)
    dilation = both(more[0] if more else 1)
    result, x = node.results[0], node.args[0]
    border = borders(work.shape(x)[-2:], result.shape[-2:], kernel, stride, padding, dilation)
    if any(border):
        x = bordered(work, x, border, -inf)
    how = (x, kernel, stride, dilation)
    names = {tensor.name.rpartition(".")[2]: tensor for tensor in node.results}
    if "1" in names:
        which = work.put("which", "partition.pool_which", how, result.shape, "int64")
        work.which["%" + names["1"].name] = which
    if "0" in names:
        work.ends(work.put("top", "partition.pool_max", how, result.shape, result.dtype), names["0"])
    return True


def bordered(work: Smaller, x: str, border: Sequence[int], value: float) -> str:
    """x with places around its last dims."""
    shape = list(work.shape(x))
    for k in range(len(border) // 2):
        shape[-1 - k] += border[2 * k] + border[2 * k + 1]
    return work.put("border", "aten.constant_pad_nd.default", (x, tuple(border), value), shape, work.dtype(x))


def max_pool_backward(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """The gradients of windows, at the places of their largest elements."""
    kernel, stride, padding, more = pooled(node, 2)
    dilation = both(more[0] if len(more) > 2 else 1)
    gradient, which = node.args[0], work.which[node.args[-1]]
    (result,) = node.results
    border = borders(result.shape[-2:], work.shape(gradient)[-2:], kernel, stride, padding, dilation)
    shape = [
        *result.shape[:-2],
        *(n + border[2 * k] + border[2 * k + 1] for n, k in zip(result.shape[-2:], (1, 0), strict=True)),
    ]
    args = (gradient, which, kernel, stride, dilation)
    found = work.put("spread", "partition.pool_max_gradient", args, shape, result.dtype)
    if any(border):
        found = bordered(work, found, [-side for side in border], 0)
    work.ends(found, result)
    return True


def avg_pool(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """A convolution of each channel by ones, divided by the number of elements."""
    kernel, stride, padding, more = pooled(node, 1)
    x, (result,) = node.args[0], node.results
    image, count = work.shape(x)[-2:], result.shape[-2:]
    if exceeds(image, count, kernel, stride, padding):
        return False
    lead = prod(result.shape[:-2])
    x = work.view(x, (lead, 1, *image))
    how = (stride, padding, (1, 1), False, (0, 0), 1)
    args = (x, ones(work, kernel, result.dtype), None, *how)
    total = work.put("sum", "aten.convolution.default", args, (lead, 1, *count), result.dtype)
    total = work.view(total, result.shape)
    work.ends(divided(work, total, cuts, image, count, kernel, stride, padding, more), result)
    return True


def avg_pool_backward(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """The gradient of such a convolution."""
    kernel, stride, padding, more = pooled(node, 2)
    gradient, (result,) = node.args[0], node.results
    image, count = result.shape[-2:], work.shape(gradient)[-2:]
    if exceeds(image, count, kernel, stride, padding):
        return False
    gradient = divided(work, gradient, cuts, image, count, kernel, stride, padding, more)
    lead = prod(result.shape[:-2])
    gradient = work.view(gradient, (lead, 1, *count))
    args = (gradient, ones(work, kernel, result.dtype), stride, padding, (1, 1), False, (0, 0), 1)
    found = work.put("sum", "partition.conv_input_gradient", args, (lead, 1, *image), result.dtype)
    work.ends(work.view(found, result.shape), result)
    return True


def ones(work: Smaller, kernel: Sequence[int], dtype: str) -> str:
    """A window of ones."""
    shape = (1, 1, *kernel)
    return work.made("ones", "aten.full.default", (shape, 1), shape, dtype, (("dtype", f"torch.{dtype}"),))


def divided(work: Smaller, x: str, cuts: Cuts, image, count, kernel, stride, padding, more: Sequence) -> str:
    """x divided by the number of elements of each window: given, or with the border, or without it."""
    _, with_border, divisor = (*more, *(False, True, None)[len(more) :])[:3]
    if divisor is not None or with_border or not any(padding):
        return work.apply("div", x, prod(kernel) if divisor is None else divisor)
    numbers = []
    for d, (n, m, k, s, p) in enumerate(zip(image, count, kernel, stride, padding, strict=True)):
        rows = work.rows(m, cuts.get(len(work.shape(x)) - 2 + d))
        first = work.apply("sub", work.apply("mul", rows, s), p)
        end = work.apply("clamp_max", work.apply("add", first, k), n, overload="default")
        begin = work.apply("clamp_min", first, 0, overload="default")
        numbers.append(work.along(work.apply("sub", end, begin), d, 2))
    size = work.apply("mul", *numbers)
    kwargs = (("dtype", f"torch.{work.dtype(x)}"),)
    size = work.put("size", "aten._to_copy.default", (size,), work.shape(size), work.dtype(x), kwargs)
    return work.apply("div", x, size)


SMALLER = {
    POOL: max_pool,
    POOL_BACK: max_pool_backward,
    "avg_pool2d": avg_pool,
    "avg_pool2d_backward": avg_pool_backward,
}
