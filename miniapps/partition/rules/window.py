"""Convolutions and their gradients. Samples may be cut, channels are contracted, places of the image have windows.

result     (n, o, places)  of x (n, c, places), weight (o, c, kernel); transposed: weight (c, o, kernel)
of input   the other kind of convolution, of the gradient by the same weight
of weight  a sum over samples and places: the input is read around the places of the gradient
"""

from collections.abc import Sequence

from miniapps.partition.graphs.graph import Node, Tensor
from miniapps.partition.rules.factors import CONTRACTING, Reach, Rule, all_whole, labelled


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
    if groups != 1:
        return all_whole(node, tensors, f"a convolution in {groups} groups", "conv")
    places = [f"place{d}" for d in range(len(stride))]
    window = [f"window{d}" for d in range(len(stride))]
    weight = ["c", "o", *window] if transposed else ["o", "c", *window]
    kernel = tensors[1].shape[2:]
    reaches = [
        Reach(place, 0, 0, True, kernel[d], stride[d], dilation[d], padding[d], transposed)
        for d, place in enumerate(places)
    ]
    return windowed(node, tensors, [["n", "c", *places], weight], [["n", "o", *places]], window, reaches)


def weight_gradient(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """partition.conv_weight_gradient(gradient, x, ...): the window moves over x, or over the gradient if transposed,
    and reads it around the places of the other operand."""
    stride, padding, dilation, transposed, _, groups = node.args[2:8]
    if groups != 1:
        return all_whole(node, tensors, f"a convolution in {groups} groups", "conv")
    places = [f"place{d}" for d in range(len(stride))]
    window = [f"window{d}" for d in range(len(stride))]
    gradient, x = ["n", "o", *places], ["n", "c", *places]
    weight = ["c", "o", *window] if transposed else ["o", "c", *window]
    kernel = node.results[0].shape[2:]
    image, centre = (0, 1) if transposed else (1, 0)
    reaches = [
        Reach(place, image, centre, False, kernel[d], stride[d], dilation[d], padding[d], False)
        for d, place in enumerate(places)
    ]
    return windowed(node, tensors, [gradient, x], [weight], window, reaches)


def windowed(node, tensors, operands, results, window, reaches: list[Reach]) -> Rule:
    """A rule with windows; places may be cut unless the stride exceeds the window."""
    whole, why = list(window), ""
    for reach in reaches:
        if reach.stride > (reach.kernel - 1) * reach.dilation + 1:
            whole.append(reach.label)
            why = f"a stride of {reach.stride} is more than the window"
    return labelled(
        node, tensors, operands, results, "conv", whole=whole, priority=CONTRACTING, fill=0.0,
        reaches=tuple(reaches), reason=why,
    )  # fmt: skip


def pool(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """Samples and channels may be cut; places are whole, because indices refer to the whole image."""
    rank = len(node.results[0].shape)
    lead = rank - 2
    operands = [[*range(lead), *[f"{k}.{d}" for d in range(2)]] for k in range(len(tensors))]
    results = [[*range(lead), *[f"result{d}" for d in range(2)]]] * len(node.results)
    places = [label for labels in (*operands, *results) for label in labels[lead:]]
    return labelled(
        node, tensors, operands, results, "rowwise", whole=places, reason="pooled images are whole"
    )


RULES = {
    "convolution": convolution,
    "conv_input_gradient": input_gradient,
    "conv_weight_gradient": weight_gradient,
    **dict.fromkeys(
        ("max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward"),
        pool,
    ),
}
