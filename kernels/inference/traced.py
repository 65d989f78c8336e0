"""Graphs as functions of jax.numpy, which JAX compiles and lowers to StableHLO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels.inference.graph import Graph, Node


def traced(graph: Graph) -> Callable[[Any], Any]:
    """The function of x, `(batch, *sample)`, or `sample` where the graph has no batch; its constants are inside.

    The order of sums is XLA's: a contraction is one operation, not the chain of `kernels.inference.reference`.
    """
    import jax.numpy as jnp

    constants = {name: jnp.asarray(array) for name, array in graph.constants.items()}

    def function(x):
        values = {graph.input: x if graph.batched else x[None]}
        for node in graph.nodes:
            roles = {role: constants[name] for role, name in node.constants.items()}
            values[node.name] = _operation(node, [values[i] for i in node.inputs], roles)
        return values[graph.output] if graph.batched else values[graph.output][0]

    return function


def _operation(node: Node, inputs: list, constants: dict):
    import jax
    import jax.numpy as jnp

    x, shape = inputs[0], (len(inputs[0]), *node.shape)
    kind, attributes = node.operation, node.attributes
    if kind == "linear":
        return _biased(jnp.matmul(x, constants["weight"].T, precision="highest"), constants.get("bias"))
    if kind == "conv2d":
        padding = [(width, width) for width in attributes["padding"]]
        y = jax.lax.conv_general_dilated(
            x,
            constants["weight"],
            attributes["stride"],
            padding,
            rhs_dilation=attributes["dilation"],
            precision="highest",
        )
        bias = constants.get("bias")
        return y if bias is None else y + bias[:, None, None]
    if kind in ("max_pool2d", "avg_pool2d"):
        window, stride = ((1, 1, *attributes[name]) for name in ("window", "stride"))
        if kind == "max_pool2d":
            return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, stride, "VALID")
        high, wide = attributes["window"]
        return jax.lax.reduce_window(x, 0.0, jax.lax.add, window, stride, "VALID") / (high * wide)
    if kind in ("sum", "mean", "max"):
        return getattr(jnp, kind)(x, axis=-1, keepdims=True)
    if kind == "norm":
        return jnp.sqrt((x * x).sum(axis=-1, keepdims=True))
    if kind in MAPS:
        return MAPS[kind](jax, x)
    if kind == "reshape":
        return x.reshape(shape)
    if kind == "concat":
        return jnp.concatenate(inputs, axis=attributes["axis"] + 1)
    if kind == "gather":
        return x[:, constants["index"]]
    if kind == "index_add":
        start = inputs[1] if len(inputs) > 1 else constants["start"]
        return jnp.broadcast_to(start, shape).at[:, constants["index"]].add(x)
    a, b = x, inputs[1] if len(inputs) > 1 else constants["other"]
    a, b = (b, a) if kind in ("rsub", "rdiv") else (a, b)
    return jnp.broadcast_to(PAIRS[kind.removeprefix("r")](jnp, a, b), shape)


def _biased(y, bias):
    return y if bias is None else y + bias


MAPS: dict[str, Callable] = {
    "relu": lambda jax, x: jax.nn.relu(x),
    "exp": lambda jax, x: jax.numpy.exp(x),
    "tanh": lambda jax, x: jax.numpy.tanh(x),
    "sigmoid": lambda jax, x: jax.nn.sigmoid(x),
    "log": lambda jax, x: jax.numpy.log(x),
    "sqrt": lambda jax, x: jax.numpy.sqrt(x),
    "neg": lambda jax, x: -x,
}
PAIRS: dict[str, Callable] = {
    "add": lambda jnp, a, b: a + b,
    "sub": lambda jnp, a, b: a - b,
    "mul": lambda jnp, a, b: a * b,
    "div": lambda jnp, a, b: a / b,
    "maximum": lambda jnp, a, b: jnp.maximum(a, b),
}
