"""Reductions of a plan: which ordering and accumulation add partial values. No MPI, no torch.

| guarantee | by itself | others that a run may name |
|---|---|---|
| none | `library` | all |
| run | `direct` | those in a fixed order of ranks |
| layout | `block-tree` | none: only one tree over all blocks has these bits |
| exact | `direct in exact` | orderings with a schedule, in `exact` |
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels.allreduce import Reduction, catalog, operations
from kernels.allreduce.reduction import IN, OVER
from kernels.guarantees import ChoiceError, meets
from miniapps.partition.cuts.mesh import Mesh

FLOATS = ("float32", "float64")
OPERATIONS = {"sum": operations.SUM, "max": operations.MAX, "min": operations.MIN}
USUAL = {
    "none": ("library", "working"), "run": ("direct", "working"), "layout": ("block-tree", "working"),
    "exact": ("direct", "exact"),
}  # (ordering, accumulation) of each guarantee  # fmt: skip


def reduction(
    level: str,
    combine: str,
    dtype: str,
    n: int,
    bounds: Sequence[int] | None = None,
    by: str = "",
) -> Reduction:
    """The all-reduce of n elements of partial values under a guarantee; with `bounds` a reduce-scatter with the same
    sums. `by`: the label of another ordering than the guarantee's, such as "ring" (`require_ordering`). A
    reduce-scatter uses `direct` where the ordering has none."""
    ordering, accumulation = parts_of(by) if by else USUAL[level]
    if not (combine == "sum" and dtype in FLOATS):
        accumulation = "working"
        if level == "exact":
            ordering = "block-tree"
    if bounds is not None and not catalog.get(ordering).scheduled:
        ordering = "direct"
    return Reduction(
        ordering, (n,), np.dtype(dtype), accumulation=accumulation, operation=OPERATIONS[combine],
        collective="allreduce" if bounds is None else "reduce-scatter", bounds=bounds,
    )  # fmt: skip


def parts_of(label: str) -> tuple[str, str]:
    """(ordering, accumulation) of a label: "ring", "direct in exact"."""
    ordering, _, accumulation = label.partition(IN)
    return ordering, accumulation or "working"


def usual(level: str) -> str:
    """The label of a guarantee's own ordering."""
    return Reduction(USUAL[level][0], (1,), accumulation=USUAL[level][1]).label


def require_ordering(by: str, level: str, mesh: Mesh | None = None) -> None:
    """Raise ChoiceError for the label of an ordering that does not exist, that a plan cannot have under a guarantee,
    or that has no schedule among some ranks of a mesh; "" is the guarantee's own."""
    if not by or by == usual(level):
        return
    if OVER in by:
        raise ChoiceError(f"ordering {by}: name its wire with --wire")
    found = Reduction.named(by, (1,))
    if level == "layout":
        raise ChoiceError(
            f"ordering {by}: under layout sums over blocks are added by block-tree; choose --guarantee exact for "
            "another ordering, which then adds exactly"
        )
    if found.entry.name.partition(":")[0] == "block-tree":
        raise ChoiceError(
            f"ordering {by}: it adds blocks, which ranks keep apart under layout; choose --guarantee layout"
        )
    if by == "arrival":
        raise ChoiceError(
            "ordering arrival: a plan has no order of arrival to repeat; choose library, or one with a schedule"
        )
    found.require(level)
    if mesh is not None and found.entry.scheduled and not found.needs_links:
        sizes = {1}
        for _, n in mesh.axes:
            sizes |= {n * size for size in sizes}
        for size in sorted(sizes - {1}):
            found.schedule(size, nodes=(0,) * size)


def is_exact(found: Reduction, level: str) -> bool:
    """Whether the array of every block contributes to a reduction, instead of one array of each rank."""
    return found.accumulation == "exact" and meets(level, "layout")
