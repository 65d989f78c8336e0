"""Rules for the cuts of operations: a module per family, each with a table RULES {operation: function}.

    rule(node, tensors) -> Rule        tensors: of `node.operands()`, in this order

An operation is the target without `aten.` and overload (`mm`). Without a function for it, or without dims to cut, all
tensors are whole, and `Rule.reason` explains this.
"""

from collections.abc import Callable, Sequence

from miniapps.partition.graphs.graph import Node, Tensor
from miniapps.partition.graphs.simplify import operation
from miniapps.partition.rules import (
    contraction,
    lookup,
    manual,
    parts,
    pointwise,
    random,
    reduction,
    shape,
    window,
)
from miniapps.partition.rules.factors import Rule, all_whole

FAMILIES = (pointwise, shape, contraction, reduction, window, lookup, random, parts, manual)
RULES: dict[str, Callable[[Node, Sequence[Tensor]], Rule]] = {
    name: function for family in FAMILIES for name, function in family.RULES.items()
}


def rule(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """The rule of a node."""
    known = RULES.get(operation(node.target))
    if known is None:
        return all_whole(node, tensors, f"no rule for {node.target}")
    try:
        return known(node, tensors)
    except (
        IndexError,
        TypeError,
        ValueError,
    ):  # arguments unknown to the rule; whole tensors are always correct
        return all_whole(node, tensors, f"no rule for {node.target} with these arguments")
