"""The definition of `static` in NumPy: every output, and the order of its sum.

    outputs = evaluate(graph, x)

float32 throughout. Each product is rounded, then added, k ascending, starting from the bias or +0.0. Slow: a NumPy
operation per k. Every NaN of the result is the one without sign and payload.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from kernels.elementary import polynomial
from kernels.inference.graph import Graph, Node

ONE = np.float32(1.0)


def evaluate(graph: Graph, x: np.ndarray) -> np.ndarray:
    """The result of `graph` for x, float32 `(batch, *sample)`, or `sample` where the graph has no batch."""
    x = np.asarray(x, np.float32)
    values = {graph.input: x if graph.batched else x[None]}
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            constants = {role: graph.constants[name] for role, name in node.constants.items()}
            values[node.name] = OPERATIONS[node.operation](
                node, *(values[i] for i in node.inputs), **constants
            )
    result = values[graph.output].copy()
    result[np.isnan(result)] = np.float32(np.nan)
    return result if graph.batched else result[0]


def linear(node: Node, x, weight, bias=None):
    """k = column of x, ascending."""
    sums = np.zeros((*x.shape[:-1], len(weight)), np.float32)
    if bias is not None:
        sums += bias
    for k in range(weight.shape[1]):
        sums = sums + x[..., k, None] * weight[:, k]
    return sums


def conv2d(node: Node, x, weight, bias=None):
    """k = (channel, row, column) of the window, ascending; elements beyond the edge are +0.0 and count as terms."""
    (down, right), (rows, columns) = node.attributes["stride"], node.shape[1:]
    (high, wide), (over, along) = node.attributes["dilation"], node.attributes["padding"]
    x = np.pad(x, ((0, 0), (0, 0), (over, over), (along, along)))
    sums = np.zeros((len(x), *node.shape), np.float32)
    if bias is not None:
        sums += bias[:, None, None]
    for c, i, j in product(*map(range, weight.shape[1:])):
        part = x[:, c, i * high :, j * wide :][
            :, : (rows - 1) * down + 1 : down, : (columns - 1) * right + 1 : right
        ]
        sums = sums + part[:, None] * weight[:, c, i, j][:, None, None]
    return sums


def _windows(node: Node, x):
    (high, wide), (down, right), (rows, columns) = (
        node.attributes["window"],
        node.attributes["stride"],
        node.shape[1:],
    )
    for i, j in product(range(high), range(wide)):
        yield x[..., i : i + (rows - 1) * down + 1 : down, j : j + (columns - 1) * right + 1 : right]


def larger(a, b):
    """b where it is larger than a or NaN, else a."""
    return np.where((b > a) | np.isnan(b), b, a)


def max_pool2d(node: Node, x):
    """The largest element of a window, row by row; the first of equals; NaN if the window has one."""
    parts = list(_windows(node, x))
    largest = parts[0]
    for part in parts[1:]:
        largest = larger(largest, part)
    return largest


def avg_pool2d(node: Node, x):
    """Sum from +0.0 row by row, divided by the number of elements."""
    total = np.zeros((len(x), *node.shape), np.float32)
    for part in _windows(node, x):
        total = total + part
    high, wide = node.attributes["window"]
    return total / np.float32(high * wide)


def exponential(x):
    """exp(x): a polynomial in x - n log 2, times 2^n in two steps, with n the integer nearest to x / log 2."""
    x = np.where(x > 89, np.float32(89), x)
    x = np.where(x < -104, np.float32(-104), x)
    integer = np.float32(12582912.0)
    shifted = x * np.float32(1.44269504) + integer
    n = shifted - integer
    power = shifted.view(np.int32) - np.int32(0x4B400000)
    r = (x - n * np.float32(0.693359375)) - n * np.float32(-2.12194440e-4)
    p = polynomial(
        r,
        1.9875691500e-4,
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    )
    y = (p * (r * r) + r) + ONE
    half = power >> 1
    return (y * ((half + 127) << 23).view(np.float32)) * ((power - half + 127) << 23).view(np.float32)


def tanh(x):
    """An odd polynomial below 0.625, else 1 - 2 / (exp(2 |x|) + 1); with the sign of x."""
    a = np.abs(x)
    z = a * a
    p = polynomial(
        z, -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1
    )
    y = np.where(a < np.float32(0.625), (p * z) * a + a, ONE - np.float32(2.0) / (exponential(a + a) + ONE))
    return (y.view(np.int32) | (x.view(np.int32) & np.int32(-(2**31)))).view(np.float32)


def sigmoid(x):
    """With e = exp(-|x|): e / (1 + e) for x below zero, else 1 / (1 + e)."""
    e = exponential(-np.abs(x))
    return np.where(x < 0, e, ONE) / (ONE + e)


def logarithm(x):
    """log: x = m 2^e with m in [sqrt(1/2), sqrt(2)), a polynomial of m - 1, plus e log 2 in two parts."""
    tiny = x < np.float32(1.17549435e-38)
    bits = np.where(tiny, x * np.float32(8388608.0), x).view(np.int32)
    e = ((bits - np.int32(0x3F3504F3)) >> 23) - np.where(tiny, np.int32(23), np.int32(0))
    m = (((bits - np.int32(0x3F3504F3)) & 0x7FFFFF) + np.int32(0x3F3504F3)).view(np.float32) - ONE
    n, z = e.astype(np.float32), m * m
    p = polynomial(m, 7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
                   -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip
    y = (p * m) * z
    y = y + n * np.float32(-2.12194440e-4)
    y = y - z * np.float32(0.5)
    log = (m + y) + n * np.float32(0.693359375)
    log = np.where(x < np.inf, log, x)
    log = np.where(x < 0, np.float32(np.nan), log)
    return np.where(x == 0, np.float32(-np.inf), log)


def _map(f):
    return lambda node, x: f(x)


def _pair(f):
    def operation(node, a, b=None, other=None):
        return np.broadcast_to(f(a, other if b is None else b), (len(a), *node.shape))

    return operation


def _reduce(node: Node, x):
    """A reduction of the last axis, ascending, from +0.0; `max` starts from the first element."""
    kind = node.operation
    total = x[..., 0] if kind == "max" else np.zeros(x.shape[:-1], np.float32)
    for k in range(x.shape[-1]):
        part = x[..., k]
        total = larger(total, part) if kind == "max" else total + (part * part if kind == "norm" else part)
    if kind == "mean":
        total = total / np.float32(x.shape[-1])
    return (np.sqrt(total) if kind == "norm" else total)[..., None]


def index_add(node: Node, source, start_node=None, index=None, start=None):
    """Adds rows of `source` to the start value, by ascending place."""
    start = start if start_node is None else start_node
    out = np.broadcast_to(start, (len(source), *node.shape)).copy()
    for i, row in enumerate(index):
        out[:, row] += source[:, i]
    return out


OPERATIONS = {
    "linear": linear,
    "conv2d": conv2d,
    "max_pool2d": max_pool2d,
    "avg_pool2d": avg_pool2d,
    "relu": _map(lambda x: np.where(x < 0, np.float32(0.0), x)),
    "exp": _map(exponential),
    "tanh": _map(tanh),
    "sigmoid": _map(sigmoid),
    "log": _map(logarithm),
    "sqrt": _map(np.sqrt),
    "neg": _map(np.negative),
    "add": _pair(np.add),
    "sub": _pair(np.subtract),
    "rsub": _pair(lambda a, b: b - a),
    "mul": _pair(np.multiply),
    "div": _pair(np.divide),
    "rdiv": _pair(lambda a, b: b / a),
    "maximum": _pair(larger),
    "sum": _reduce,
    "mean": _reduce,
    "norm": _reduce,
    "max": _reduce,
    "reshape": lambda node, x: x.reshape(len(x), *node.shape),
    "concat": lambda node, *parts: np.concatenate(parts, axis=node.attributes["axis"] + 1),
    "gather": lambda node, x, index: x[:, index],
    "index_add": index_add,
}
