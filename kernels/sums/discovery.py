"""Compares the discovered tree of a variant with the one that it declares, as text and as JSON."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.guarantees import meets
from kernels.registry import Variant
from kernels.sums.black_box import black_box
from kernels.sums.discover import DoesNotRepeat, NotATree, discover
from kernels.sums.elements import accumulator
from kernels.sums.outline import outline
from kernels.sums.trees import NO_TREE, of_variant
from kernels.tree import NoOrder, depth, expression, same

WRITTEN_OUT = 16  # terms, at most, for a tree to be printed as an expression


@dataclass(frozen=True)
class Known:
    """The discovery of a variant: `found` is its tree, a NoOrder, or the error NotATree; `stated` is the declared tree,
    or None."""

    variant: Variant
    n: int
    dtype: np.dtype
    parameters: dict[str, Any]
    found: Any
    stated: Any = None

    @property
    def is_tree(self) -> bool:
        """Whether a tree was discovered."""
        return not isinstance(self.found, NotATree | NoOrder)

    @property
    def as_promised(self) -> bool:
        """Whether the discovery agrees with the variant's guarantee and its declared tree."""
        if isinstance(self.found, NotATree):  # a library need not add by a tree
            library = self.variant.name in NO_TREE and not isinstance(self.found, DoesNotRepeat)
            return library or not meets(self.variant.guarantee, "run")
        return isinstance(self.found, NoOrder) or self.stated is None or same(self.found, self.stated)

    def text(self, in_full: bool, quiet: bool = False) -> str:
        """The discovery as text. `in_full`: the expression for any number of terms; `quiet`: without remarks."""
        v = self.variant
        shape = "".join(f", {name} {value}" for name, value in self.parameters.items())
        head = f"{v.operation} {v.name!r} ({v.backend}) of {self.n} {self.dtype.name}{shape}"
        if isinstance(self.found, NotATree):
            lines = [f"{head}: no tree", *textwrap.wrap(f"{self.found}.", 118)]
            if not meets(v.guarantee, "run"):
                lines.append(f"The variant promises no order: {v.why}.")
            return "\n".join(lines)
        if isinstance(self.found, NoOrder):
            return f"{head}: {self.found.kind}" + ("" if quiet else f"\n{_without_order(v, self.found)}")
        lines = [f"{head}: depth {depth(self.found)}, so off by at most {depth(self.found)} u sum|x|"]
        lines += [expression(self.found)] if in_full or self.n <= WRITTEN_OUT else outline(self.found)
        if quiet and self.as_promised:
            return "\n".join(lines)
        if self.stated is None:
            return "\n".join([*lines, f"No tree is declared: {NO_TREE.get(v.name, 'the hardware decides')}."])
        declared = "This is the tree" if self.as_promised else "NOT THE TREE"
        return "\n".join([*lines, f"{declared} that the order declares."])

    def entry(self) -> dict[str, Any]:
        """The content of the JSON document: `kind` is `tree`, `no tree`, or the kind of NoOrder."""
        v = self.variant
        kind = "tree" if self.is_tree else "no tree" if isinstance(self.found, NotATree) else self.found.kind
        return {
            "operation": v.operation, "order": v.name, "backend": v.backend, "guarantee": v.guarantee, "n": self.n,
            "dtype": self.dtype.name, "parameters": self.parameters, "kind": kind,
            "reason": str(self.found) if isinstance(self.found, NotATree) else None,
            "depth": depth(self.found) if self.is_tree else None,
            "expression": expression(self.found) if self.is_tree else None,
            "declared": self.stated is not None, "as_promised": self.as_promised,
        }  # fmt: skip


def tree_of(variant: Variant, n: int, dtype: np.dtype, given: dict) -> Known:
    """Discovers the tree of a variant for n terms of `dtype`, and adds the declared one."""
    parameters = {"threads": 1} | given if "threads" in variant.parameters else given
    try:
        tree = discover(black_box(variant, **parameters), n, dtype, accumulator(dtype))
    except NotATree as error:
        return Known(variant, n, dtype, parameters, error)
    stated = None if isinstance(tree, NoOrder) else of_variant(variant, n, **parameters)
    return Known(variant, n, dtype, parameters, tree, stated)


def _without_order(variant: Variant, reason: NoOrder) -> str:
    if reason.kind == "order-free":
        text = "Every permutation gives the same bits: there is no order"
    else:
        text = (
            "Errors are carried along, so it is more accurate than a tree, but permutations change the bits"
        )
    parts = [part for part in reason.parts if isinstance(part, tuple)]
    lines = textwrap.wrap(f"{text}. {variant.why[0].upper()}{variant.why[1:]}.", 118)
    if parts:
        what = (
            "Its main sum"
            if len(reason.parts) == 1
            else f"It combines {len(reason.parts)} partial sums in this way; the first"
        )
        lines += [f"{what}:", *(f"  {line}" for line in outline(parts[0]))]
    return "\n".join(lines)
