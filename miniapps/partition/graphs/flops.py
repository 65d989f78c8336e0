"""Model FLOPs of a step and how fast a core could do them: what the utilisation of a run is made of.

Utilisation = model FLOPs of a step / (seconds of the step x cores x rate of a core). The model FLOPs are those of the
unsharded model, whatever is done twice or in parts, so that runs on different meshes compare (Chowdhery et al. 2022,
PaLM, arXiv 2204.02311, appendix B).
"""

from __future__ import annotations

import time
from math import prod

from miniapps.partition.graphs.graph import Graph, Node

PRODUCT = 512  # rows, columns and depth of the product whose rate is that of a core
TRIES = 7
ATTENTION = "_scaled_dot_product"


def model_flops(graph: Graph) -> int:
    """Floating-point operations of a step of the unsharded model, forward and backward: a multiplication and the
    addition that follows it are two.

    Counted are products of matrices, convolutions with both of their gradients, and attention. Attention forward is two
    products of (queries, keys, width) for each sample and head, backward four: scores that a kernel computes again are
    not counted, and masked ones are. Operations on elements, normalisations, lookups and the optimiser count nothing.
    """
    shapes = {name: tensor.shape for name, tensor in graph.tensors().items()}
    return sum(node_flops(node, shapes) for node in graph.nodes)


def node_flops(node: Node, shapes: dict[str, tuple[int, ...]]) -> int:
    """Those of one operation, 0 for what is not counted."""
    name, result = node.target.split(".")[1], node.results[0].shape
    given = [shapes[operand] for operand in node.operands()]
    if name in ("mm", "bmm"):
        return 2 * prod(result) * given[0][-1]
    if name == "convolution":
        return 2 * windows(given[0], result, node.args[6]) * prod(given[1])
    if name == "conv_input_gradient":
        return 2 * windows(result, given[0], node.args[5]) * prod(given[1])
    if name == "conv_weight_gradient":
        return 2 * windows(given[1], given[0], node.args[5]) * prod(result)
    if name.startswith(ATTENTION):
        backward = name.endswith("backward")
        samples, heads, queries, width = given[1 if backward else 0]
        keys = given[2 if backward else 1][2]
        return (8 if backward else 4) * samples * heads * queries * keys * width
    return 0


def windows(operand: tuple[int, ...], result: tuple[int, ...], transposed: bool) -> int:
    """How often the window of a forward convolution is applied: at each place of its result, transposed of its
    operand, in each sample."""
    image = operand if transposed else result
    return image[0] * prod(image[2:])


def core_rate() -> float:
    """FLOP/s of one core: the best of some products of 512 x 512 matrices of float32 by `kernels.contract`, one thread.

    The best and not the median, as what else the machine does would make a slow machine look well used.
    """
    import torch

    from kernels.contract import matmul

    a = torch.linspace(-1, 1, PRODUCT * PRODUCT).view(PRODUCT, PRODUCT)
    out = torch.empty_like(a)
    matmul(a, a, out)
    best = float("inf")
    for _ in range(TRIES):
        begin = time.perf_counter()
        matmul(a, a, out)
        best = min(best, time.perf_counter() - begin)
    return 2 * PRODUCT**3 / best
