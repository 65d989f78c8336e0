"""Operations on elements, with broadcasting: every dim of the result may be cut."""

from collections.abc import Sequence
from math import prod

from miniapps.partition.graphs.graph import Node, Tensor
from miniapps.partition.graphs.simplify import operation
from miniapps.partition.rules.factors import Rule, labelled

NAMES = (
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "clamp",
    "clamp_max", "clamp_min", "copy", "cos", "cosh", "div", "elu", "elu_backward", "eq", "erf", "erfc", "exp",
    "exp2", "expm1", "fill", "floor", "floor_divide", "fmod", "ge", "gelu", "gelu_backward", "gt",
    "hardsigmoid", "hardsigmoid_backward", "hardswish", "hardswish_backward", "hardtanh", "hardtanh_backward",
    "isfinite", "isinf", "isnan", "le", "leaky_relu", "leaky_relu_backward", "lerp", "lgamma", "log", "log10",
    "log1p", "log2", "log_sigmoid_backward", "logical_and", "logical_not", "logical_or", "logical_xor", "lt",
    "masked_fill", "maximum", "minimum", "mish", "mish_backward", "mul", "native_dropout_backward", "ne", "neg",
    "nextafter", "pow", "reciprocal", "relu", "remainder", "round", "rsqrt", "rsub", "sgn", "sigmoid",
    "sigmoid_backward", "sign", "silu", "silu_backward", "sin", "sinh", "softplus", "softplus_backward", "sqrt",
    "square", "sub", "tan", "tanh", "tanh_backward", "threshold", "threshold_backward", "_to_copy", "trunc",
    "where", "xlogy",
)  # fmt: skip


def rule(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """Dims aligned at the right."""
    rank = len(node.results[0].shape)
    operands = [range(rank - len(tensor.shape), rank) for tensor in tensors]
    results = [range(rank)] * len(node.results)
    return labelled(node, tensors, operands, results, "pointwise", linear=linear(node, tensors))


def linear(node: Node, tensors: Sequence[Tensor]) -> tuple[frozenset[int], ...]:
    """The operands in which an operation is linear: both of a sum or difference, the first of a product or quotient
    with a number.

    A number is a Python argument or a tensor of one element. Sums must not broadcast, because broadcast partial sums
    need more bytes.
    """
    name = operation(node.target)
    alike = all(tensor.shape == node.results[0].shape for tensor in tensors)
    if name == "neg" or (name in ("mul", "div") and len(tensors) == 1 and len(node.args) == 2):
        return (frozenset({0}),) if alike and node.args[0] is not None else ()
    if name in ("mul", "div") and len(tensors) == 2 and tensors[0].shape == node.results[0].shape:
        number = prod(tensors[1].shape) == 1
        return (frozenset({0}),) if number else ()
    if name in ("add", "sub") and len(tensors) == 2 and alike:
        return (frozenset({0, 1}),)
    return ()


RULES = dict.fromkeys(NAMES, rule)
