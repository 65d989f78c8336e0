"""Random numbers: keyed by node and global element, so every dim may be cut."""

from collections.abc import Sequence

from miniapps.partition.graphs.graph import Node, Tensor
from miniapps.partition.rules.factors import Rule, labelled

NAMES = ("rand", "randn", "bernoulli", "native_dropout", "rand_like", "randn_like")


def drawn(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """The rule of a random operation, whose operands and results share one shape."""
    dims = range(len(node.results[0].shape))
    return labelled(node, tensors, [dims] * len(tensors), [dims] * len(node.results), "random")


RULES = dict.fromkeys(NAMES, drawn)
