"""Model FLOPs of a step and the rate of a core, from which the utilisation of a run follows.

Utilisation = model FLOPs of a step / (seconds of the step x cores x rate of a core). The model FLOPs count the
unsharded model, even if ranks repeat or divide work, so that runs on different meshes are comparable (Chowdhery et al.
2022, PaLM, arXiv 2204.02311, appendix B).
"""

from __future__ import annotations

import time
from math import prod

from miniapps.partition.graphs.graph import Graph, Node

PRODUCT = 512  # rows, columns and depth of the product that measures a core's rate
TRIES = 7
ATTENTION = "_scaled_dot_product"


def model_flops(graph: Graph) -> int:
    """Floating-point operations of a step of the unsharded model, forward and backward; a multiplication and an
    addition count as two.

    Counts products of matrices, convolutions with both gradients, and attention. Attention is two products of (queries,
    keys, width) per sample and head forward, four backward: this includes masked scores, and excludes scores that a
    kernel computes again. Operations on elements, normalisations, lookups and the optimiser count nothing.
    """
    shapes = {name: tensor.shape for name, tensor in graph.tensors().items()}
    return sum(node_flops(node, shapes) for node in graph.nodes)


def node_flops(node: Node, shapes: dict[str, tuple[int, ...]]) -> int:
    """The floating-point operations of one node, 0 for operations that do not count."""
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
    """The number of applications of a forward convolution's window: one per sample and place of its result, or of its
    operand if transposed."""
    image = operand if transposed else result
    return image[0] * prod(image[2:])


def core_rate() -> float:
    """FLOP/s of one core: the faster of `core_rates`."""
    return max(core_rates().values())


def core_rates() -> dict[str, float]:
    """{variant: FLOP/s of one core} of `kernels.contract` and of torch: the best of TRIES products of 512 x 512
    matrices of float32, in turn, one thread.

    Not the median: other load on the machine would lower the rate, and so raise the utilisation.
    """
    import torch

    from kernels.contract import matmul

    a = torch.linspace(-1, 1, PRODUCT * PRODUCT).view(PRODUCT, PRODUCT)
    out = torch.empty_like(a)
    best = dict.fromkeys(("own", "torch"), float("inf"))
    for number in range(1 + TRIES):
        for variant in best:
            begin = time.perf_counter()
            matmul(a, a, out, variant=variant, threads=1)
            if number:  # the first call warms up
                best[variant] = min(best[variant], time.perf_counter() - begin)
    return {variant: 2 * PRODUCT**3 / seconds for variant, seconds in best.items()}
