"""Networks for the tests of `kernels.inference`, as graphs made by hand: no torch."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from kernels.inference.graph import Graph, Node


def bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.int32)


def same(x: np.ndarray, y: np.ndarray) -> bool:
    return x.shape == y.shape and np.array_equal(bits(x), bits(y))


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def hard(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Normal numbers of many sizes, among them NaN, infinities, both zeros and subnormals."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(shape) * 10.0 ** rng.integers(-30, 30, shape)).astype(np.float32)
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-40, 3e38], np.float32)
    return np.where(rng.random(shape) < 0.05, rng.choice(special, shape), x)


def graph(sample: tuple[int, ...], *steps, batched: bool = True, **constants: np.ndarray) -> Graph:
    """A chain from the input `x`: steps (operation, shape, constants by role, attributes), or nodes."""
    nodes: list[Node] = []
    before = "x"
    for k, step in enumerate(steps):
        if isinstance(step, Node):
            nodes.append(step)
        else:
            operation, shape, of, attributes = (*step, {}, {})[:4]
            nodes.append(Node(f"{operation}{k}", operation, (before,), shape, of, attributes, "made by hand"))
        before = nodes[-1].name
    return Graph("x", sample, before, nodes, {n: np.asarray(a) for n, a in constants.items()}, batched)


def window(n: int, step: int) -> dict:
    return {"window": (n, n), "stride": (step, step)}


def convolution(padding: int = 0, stride: int = 1, dilation: int = 1) -> dict:
    return {"stride": (stride, stride), "padding": (padding, padding), "dilation": (dilation, dilation)}


def mlp(widths=(784, 128, 128, 10), draw=normal) -> Graph:
    """Linear layers with ReLU between them, as `miniapps.training` has them."""
    steps: list = [("reshape", (widths[0],))]
    constants = {}
    for k, (inner, outer) in enumerate(pairwise(widths)):
        constants |= {f"w{k}": draw(outer, inner) / np.float32(inner**0.5), f"b{k}": draw(outer)}
        steps += [("linear", (outer,), {"weight": f"w{k}", "bias": f"b{k}"}), ("relu", (outer,))]
    return graph((28, widths[0] // 28), *steps[:-1], **constants)


def cnn(channels: int = 8, hidden: int = 64, edge: int = 28) -> Graph:
    """Two convolutions of 5 x 5 with ReLU and pooling, two linear layers, as `miniapps.training` has them."""
    first, second, half, quarter = channels, 2 * channels, edge // 2, edge // 4
    flat = second * quarter**2
    return graph(
        (edge, edge),
        ("reshape", (1, edge, edge)),
        ("conv2d", (first, edge, edge), {"weight": "w1", "bias": "b1"}, convolution(2)),
        ("relu", (first, edge, edge)),
        ("max_pool2d", (first, half, half), {}, window(2, 2)),
        ("conv2d", (second, half, half), {"weight": "w2", "bias": "b2"}, convolution(2)),
        ("relu", (second, half, half)),
        ("max_pool2d", (second, quarter, quarter), {}, window(2, 2)),
        ("reshape", (flat,)),
        ("linear", (hidden,), {"weight": "w3", "bias": "b3"}),
        ("relu", (hidden,)),
        ("linear", (10,), {"weight": "w4", "bias": "b4"}),
        w1=normal(first, 1, 5, 5) / 5, b1=normal(first), w2=normal(second, first, 5, 5) / 14, b2=normal(second),
        w3=normal(hidden, flat) / np.float32(flat**0.5), b3=normal(hidden), w4=normal(10, hidden) / 8, b4=normal(10),
    )  # fmt: skip


def closure(edge: int = 14, channels: int = 8) -> Graph:
    """Three convolutions without padding and a sigmoid, as the learned closure of `miniapps.coupled`."""
    return graph(
        (2, edge, edge),
        ("conv2d", (channels, edge - 2, edge - 2), {"weight": "w1", "bias": "b1"}, convolution()),
        ("relu", (channels, edge - 2, edge - 2)),
        ("conv2d", (channels, edge - 4, edge - 4), {"weight": "w2", "bias": "b2"}, convolution()),
        ("relu", (channels, edge - 4, edge - 4)),
        ("conv2d", (1, edge - 4, edge - 4), {"weight": "w3", "bias": "b3"}, convolution()),
        ("sigmoid", (1, edge - 4, edge - 4)),
        ("mul", (1, edge - 4, edge - 4), {"other": "limit"}),
        w1=normal(channels, 2, 3, 3) / 4, b1=normal(channels), w2=normal(channels, channels, 3, 3) / 8,
        b2=normal(channels), w3=normal(1, channels, 1, 1) / 3, b3=normal(1), limit=np.float32(0.5),
    )  # fmt: skip
