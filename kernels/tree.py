"""The tree of a sum, which states the partial sums that are added to each other: as data, as text, its depth and its
error bound.

A tree of n terms added one after the other has depth n - 1, so no function here recurses. Do not compare deep trees
with `==`, which recurses in Python; see `same`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

Tree = int | tuple["Tree", ...]
"""A term (its index), or the sum of two trees, or of several that are added at once."""


ORDER_FREE, COMPENSATED = "order-free", "compensated"


@dataclass(frozen=True)
class NoOrder:
    """A sum that is more than a tree of rounded additions.

    `kind` is 'order-free' when the order does not change the bits (exact, binned and fixed-point sums). It is
    'compensated' when rounding errors are carried along and the order still changes the bits.

    `parts` are the known trees. Usually they are the single terms, since the large number M of the discovery hides no
    term that is kept separately. They are partial sums of blocks where only these are combined in this way. A sum like
    Kahan's has one tree, since M absorbs its correction as it absorbs the units.

    `rounded` is the type to which an order-free sum rounds the exact sum of its terms, once; empty where it does not,
    or where this is unknown.
    """

    kind: str
    parts: tuple[Tree, ...]
    rounded: str = field(default="", compare=False)

    def __str__(self) -> str:
        """A sentence that describes the sum."""
        count = len(self.parts)
        what = f"{count} {'partial sums' if any(isinstance(part, tuple) for part in self.parts) else 'terms'}"
        if self.kind == ORDER_FREE and self.rounded:
            return f"no order: the exact sum of {what}, rounded once to {self.rounded}"
        if self.kind == ORDER_FREE:
            return f"no order: every permutation of {what} gives the same bits"
        if count == 1:
            return "no expression: the rounding errors of this order are carried along"
        return (
            f"no expression: the rounding errors of {what} are carried along, and an order shows in the bits"
        )


def _children_first(tree: Tree) -> list[Tree]:
    """All nodes, children before their parent, left to right."""
    nodes, todo = [], [tree]
    while todo:
        node = todo.pop()
        nodes.append(node)
        if isinstance(node, tuple):
            todo.extend(node)
    return nodes[::-1]


def fold(tree: Tree, leaf: Callable[[int], Any], node: Callable[[list[Any]], Any]) -> Any:
    """The value of the root: evaluates `leaf(index)` at the leaves, `node(values of the children)` above."""
    values: list[Any] = []
    for part in _children_first(tree):
        if isinstance(part, tuple):
            children = values[-len(part) :]
            del values[-len(part) :]
            values.append(node(children))
        else:
            values.append(leaf(part))
    return values.pop()


def expression(tree: Tree | NoOrder) -> str:
    """The tree as a Python expression: '((x[0] + x[1]) + x[2])'; 'add(...)' for terms added at once. For a sum without
    an order, a sentence and the partial sums whose order is known."""
    if isinstance(tree, NoOrder):
        known = [expression(part) for part in tree.parts if isinstance(part, tuple)]
        return f"{tree}: {', '.join(known)}" if known else str(tree)
    text: list[str] = []
    todo: list[Tree | str] = [tree]
    while todo:
        part = todo.pop()
        if isinstance(part, str):
            text.append(part)
        elif not isinstance(part, tuple):
            text.append(f"x[{part}]")
        else:
            begin, between = ("(", " + ") if len(part) == 2 else ("add(", ", ")
            pieces: list[Tree | str] = [begin]
            for child in part:
                pieces += [child, between]
            pieces[-1] = ")"
            todo.extend(reversed(pieces))
    return "".join(text)


def canonical(tree: Tree) -> Tree:
    """The same sum with the operands of every node sorted by their least index.

    Addition commutes, so values do not distinguish left from right: trees are compared in this form.
    """

    def node(children: list[tuple[int, Tree]]) -> tuple[int, Tree]:
        children = sorted(children, key=lambda child: child[0])
        return children[0][0], tuple(part for _, part in children)

    ordered: Tree = fold(tree, lambda index: (index, index), node)[1]
    return ordered


def same(a: Tree, b: Tree) -> bool:
    """Whether two trees have the same additions, where left and right operands may be swapped."""
    return expression(canonical(a)) == expression(canonical(b))


def nodes(tree: Tree) -> list[tuple[Tree, ...]]:
    """All additions, operands before the nodes that add them."""
    return [part for part in _children_first(tree) if isinstance(part, tuple)]


def leaves(tree: Tree) -> list[int]:
    """The indices of the terms, left to right."""
    return [part for part in _children_first(tree) if not isinstance(part, tuple)]


def depth(tree: Tree) -> int:
    """The largest number of additions between a term and the root."""
    most: int = fold(tree, lambda index: 0, lambda children: 1 + max(children))
    return most


def evaluate(tree: Tree, x: np.ndarray) -> tuple[np.floating, float]:
    """The sum of x (n,) by the tree, rounded to x's type at each addition, and a bound on its error.

    The bound is u times the sum of the magnitudes of all partial sums, u half a unit in the last place of 1
    (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., (4.3)); it is itself rounded. Raises
    ValueError for a node of several terms: a tree does not say how they are rounded.
    """
    magnitudes = 0.0

    def node(children: list[np.floating]) -> np.floating:
        nonlocal magnitudes
        if len(children) > 2:
            raise ValueError(
                f"{len(children)} terms are added at once: the tree does not say how they are rounded"
            )
        total: np.floating = children[0] + children[1]
        magnitudes += abs(float(total))
        return total

    with np.errstate(all="ignore"):
        total = fold(tree, x.__getitem__, node)
    return total, unit_roundoff(x.dtype) * magnitudes


def error_bound(additions: int, x: np.ndarray) -> float:
    """First-order bound on the error of a sum of x (n,): `additions` times u times sum|x|.

    `additions` is the `depth` of the tree, or n - 1 for any order (Higham 2002, section 4.2). u is the unit roundoff
    of x's type.
    """
    return additions * unit_roundoff(x.dtype) * math.fsum(np.abs(x).tolist())


def unit_roundoff(dtype: DTypeLike) -> float:
    """Half the distance from 1 to the next larger number of the type."""
    return float(ml_dtypes.finfo(dtype).eps) / 2
