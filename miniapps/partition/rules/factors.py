"""The form of a rule: the factors of an operation to which the dims of its operands and results belong (as in Shardy).

Every dim of a tensor is a list of labels, major to minor; dims with a common label have the same cut. A product of
matrices is `ik,kj->ij`. A label that a result lacks is summed; if it is cut, the result is partial. A label in `whole`
is never cut. The dims of a window share one label, although operand and result differ in size.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from miniapps.partition.graphs.graph import Node, Tensor

Label = Hashable
Labels = tuple[tuple[Label, ...], ...]  # per dim of a tensor

ELEMENTWISE, NORMALISING, CONTRACTING = 0, 1, 2  # priorities of propagation


@dataclass(frozen=True)
class Reach:
    """A window of an operation along `label`: a `steps.Window` with positions in place of names. `operand` is read
    beyond its block; `of` is the value whose block is processed, a result if `of_result`."""

    label: Label
    operand: int
    of: int
    of_result: bool
    kernel: int
    stride: int
    dilation: int
    padding: int
    transposed: bool
    wrap: bool = False


@dataclass(frozen=True)
class Rule:
    """Labels of operands (one entry per occurrence) and results; see the docstring of this module.

    `linear`: sets of positions of operands that may be partial together while the others are not; the result is then
    partial, with the correct sum. `fill`: value of elements that pad a summed dim. `reason`: why labels are whole.
    `parted`: labels among the whole ones that may be cut if the operation is written in smaller ones
    (`planning.smaller`).
    """

    operands: tuple[Labels, ...]
    results: tuple[Labels, ...]
    sizes: Mapping[Label, int]
    kernel: str
    priority: int = ELEMENTWISE
    whole: frozenset[Label] = frozenset()
    combine: str = "sum"
    linear: tuple[frozenset[int], ...] = ()
    fill: float | None = None
    reaches: tuple[Reach, ...] = ()
    reason: str = ""
    parted: frozenset[Label] = frozenset()
    cuttable: frozenset[Label] = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "cuttable", frozenset(self.sizes) - self.whole)

    @cached_property
    def windowed(self) -> frozenset[Label]:
        """The labels of windows, whose dims have several sizes."""
        return frozenset(reach.label for reach in self.reaches)

    @cached_property
    def opened(self) -> Rule:
        """The rule of the smaller operations together: parted labels may be cut."""
        return replace(self, whole=self.whole - self.parted, parted=frozenset()) if self.parted else self


def labelled(
    node: Node,
    tensors: Sequence[Tensor],
    operands: Sequence[Iterable],
    results: Sequence[Iterable],
    kernel: str,
    sizes: Mapping[Label, int] | None = None,
    whole: Iterable[Label] = (),
    parted: Iterable[Label] = (),
    reaches: tuple[Reach, ...] = (),
    **more,
) -> Rule:
    """A rule from a label, or a tuple of labels, per dim; dims of size 1 get no label.

    `parted` labels are whole too. `sizes` is needed for dims with several labels; other labels have the size of their
    dim, labels of windows the size in the result.
    """
    known: dict[Label, int] = dict(sizes or {})

    def of(tensor: Tensor, dims: Iterable) -> Labels:
        per_dim = []
        for n, labels in zip(tensor.shape, dims, strict=True):
            labels = labels if isinstance(labels, tuple) else (labels,)
            if n == 1:
                labels = ()
            elif len(labels) == 1:
                known.setdefault(labels[0], n)
            per_dim.append(labels)
        return tuple(per_dim)

    made = [of(tensor, dims) for tensor, dims in zip(node.results, results, strict=True)]
    read = [of(tensor, dims) for tensor, dims in zip(tensors, operands, strict=True)]
    used = {label for labels in (*made, *read) for dim in labels for label in dim}
    known = {label: n for label, n in known.items() if label in used}
    lone = set()  # a window over, or for, a single place
    for reach in reaches:
        block = (made if reach.of_result else read)[reach.of]
        if (reach.label,) not in block or (reach.label,) not in read[reach.operand]:
            lone.add(reach.label)
    parted = (frozenset(parted) & known.keys()) - lone
    whole = frozenset(whole) | parted | lone
    return Rule(
        tuple(read), tuple(made), known, kernel, whole=whole, parted=parted, reaches=tuple(reaches), **more
    )


def all_whole(node: Node, tensors: Sequence[Tensor], reason: str, kernel: str = "torch") -> Rule:
    """A rule that cuts nothing, for this reason."""

    def letters(k: int, tensor: Tensor):
        return [(k, d) for d in range(len(tensor.shape))]

    operands = [[(label,) for label in letters(k, t)] for k, t in enumerate(tensors)]
    results = [[(label,) for label in letters(-1 - k, t)] for k, t in enumerate(node.results)]
    labels = [label for dims in (*operands, *results) for (label,) in dims]
    return labelled(
        node, tensors, operands, results, kernel, whole=labels, priority=CONTRACTING, reason=reason
    )
