"""Convolutions and their gradients. Samples and groups may be cut, channels of a group are contracted, places of the
image have windows.

result     (n, o, places)  of x (n, c, places), weight (o, c, kernel); transposed: weight (c, o, kernel)
of input   the other kind of convolution, of the gradient by the same weight
of weight  a sum over samples and places: the input is read around the places of the gradient
"""

from collections.abc import Hashable, Sequence

from miniapps.partition.graphs.graph import Node, Tensor
from miniapps.partition.rules.factors import CONTRACTING, Reach, Rule, labelled


def convolution(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """aten.convolution(x, weight, None, stride, padding, dilation, transposed, output_padding, groups)."""
    stride, padding, dilation, transposed, _, groups = node.args[3:9]
    return forward(node, tensors, stride, padding, dilation, transposed, groups)


def input_gradient(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """partition.conv_input_gradient(gradient, weight, stride, padding, dilation, transposed, out padding, groups)."""
    stride, padding, dilation, transposed, _, groups = node.args[2:8]
    return forward(node, tensors, stride, padding, dilation, not transposed, groups)


def forward(node, tensors, stride, padding, dilation, transposed: bool, groups: int) -> Rule:
    """The rule from (n, c, places) to (n, o, places) by a weight (o, c, kernel), transposed (c, o, kernel)."""
    kernel = tensors[1].shape[2:]
    reaches = [
        Reach(f"place{d}", 0, 0, True, kernel[d], stride[d], dilation[d], padding[d], transposed)
        for d in range(len(stride))
    ]
    return windowed(node, tensors, ("x", "weight"), "result", groups, transposed, reaches)


def weight_gradient(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """partition.conv_weight_gradient(gradient, x, ...): the window moves over x, or over the gradient if transposed,
    and reads it around the places of the other operand."""
    stride, padding, dilation, transposed, _, groups = node.args[2:8]
    kernel = node.results[0].shape[2:]
    image, centre = (0, 1) if transposed else (1, 0)
    reaches = [
        Reach(f"place{d}", image, centre, False, kernel[d], stride[d], dilation[d], padding[d], False)
        for d in range(len(stride))
    ]
    return windowed(node, tensors, ("result", "x"), "weight", groups, transposed, reaches)


def windowed(
    node, tensors, operands, result: str, groups: int, transposed: bool, reaches: list[Reach]
) -> Rule:
    """A rule with windows, whose tensors are `x`, `weight` and `result` of a convolution.

    Channels are groups x channels of a group: each group has its own part of the weight.
    """
    shapes = dict(zip((*operands, result), (*(t.shape for t in tensors), node.results[0].shape), strict=True))
    sizes: dict[Hashable, int] = {
        "g": groups,
        "c": shapes["x"][1] // groups,
        "o": shapes["result"][1] // groups,
    }
    places = [reach.label for reach in reaches]
    window = [f"window{d}" for d in range(len(reaches))]

    def channels(label: str) -> tuple[str, ...]:
        return tuple(part for part in ("g", label) if sizes[part] > 1)

    first, second = ("c", "o") if transposed else ("o", "c")
    labels: dict[str, list] = {
        "x": ["n", channels("c"), *places],
        "result": ["n", channels("o"), *places],
        "weight": [channels(first), second, *window],
    }
    return labelled(
        node, tensors, [labels[name] for name in operands], [labels[result]], "conv", sizes, whole=window,
        priority=CONTRACTING, fill=0.0, reaches=tuple(reaches),
    )  # fmt: skip


def pool(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """Samples and channels may be cut; places are parted."""
    lead = len(node.results[0].shape) - 2
    backward = "backward" in node.target
    at = 2 if backward else 1
    kernel, stride, padding, more = pooled(node, at)
    dilation = both(more[0]) if node.target.startswith("aten.max") and more else (1, 1)
    dims = range(lead + 2)
    reaches = tuple(
        Reach(lead + d, 0, 0, True, kernel[d], stride[d], dilation[d], padding[d], backward) for d in range(2)
    )
    return labelled(
        node, tensors, [dims] * len(tensors), [dims] * len(node.results), "rowwise",
        parted=[lead, lead + 1], reaches=reaches, reason="pooled images are whole",
    )  # fmt: skip


def uneven(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """A pool into a number of places that does not divide that of the image: places are whole."""
    lead = len(node.results[0].shape) - 2
    labels = [[*range(lead), ((k, "row"),), ((k, "column"),)] for k in range(len(tensors) + 1)]
    whole = [(k, name) for k in range(len(labels)) for name in ("row", "column")]
    return labelled(
        node, tensors, labels[:-1], [labels[-1]] * len(node.results), "rowwise", whole=whole,
        reason="windows of several sizes",
    )  # fmt: skip


def pooled(node: Node, at: int) -> tuple:
    """(kernel, stride, padding) of a pool, from its argument `at` on, and the arguments after them."""
    given = list(node.args[at : at + 3])
    kernel, stride, padding = given + [(), (), 0][len(given) :]
    return both(kernel), both(stride or kernel), both(padding), node.args[at + 3 :]


def both(value) -> tuple[int, int]:
    """A number for both dims of an image, given once or twice."""
    numbers = tuple(value) if isinstance(value, tuple | list) else (value,)
    return (numbers * 2)[:2]


RULES = {
    "convolution": convolution,
    "conv_input_gradient": input_gradient,
    "conv_weight_gradient": weight_gradient,
    **dict.fromkeys(
        ("max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward"),
        pool,
    ),
    **dict.fromkeys(
        (
            "_adaptive_avg_pool2d",
            "_adaptive_avg_pool2d_backward",
            "adaptive_max_pool2d",
            "adaptive_max_pool2d_backward",
        ),
        uneven,
    ),
}
