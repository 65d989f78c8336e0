"""The user's annotations: the axes that cut parameters and inputs.

    {"blocks.0.q.weight": ("heads", None), 0: Annotation(("batch", None), priority=1)}

A key is the name of a parameter or buffer, or the position of an input; a dim is an axis or None. Annotations with
lower priority numbers propagate through the graph first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernels.guarantees import ChoiceError
from miniapps.partition.cuts.axes import Cut, Dim, canonical, text
from miniapps.partition.graphs.graph import Graph, Node, Source
from miniapps.partition.rules.project import Axes, parts


class AnnotationError(ChoiceError):
    """Annotations that contradict the problem or each other."""


@dataclass(frozen=True)
class Annotation:
    """Axes of the dims of a parameter, buffer or input. `stored`: only how it is held between steps; it does not
    propagate through the graph."""

    dims: tuple[str | None, ...]
    priority: int = 0
    stored: bool = False


Given = Mapping[str | int, "Annotation | Sequence[str | None]"]


@dataclass(frozen=True)
class Annotated:
    """A checked annotation: the cut of a value of the graph."""

    name: str
    key: str
    cut: Cut
    priority: int
    stored: bool


def fitted(graph: Graph, axes: Axes, annotations: Given) -> list[Annotated]:
    """Converts annotations to cuts of values of the graph. Raises AnnotationError."""
    by_key = {source.key: source for source in graph.sources if source.kind != "constant"}
    found = []
    for key, given in annotations.items():
        annotation = given if isinstance(given, Annotation) else Annotation(tuple(given))
        source = by_key.get(str(key))
        if source is None:
            raise AnnotationError(
                f"annotation of {key!r}: no parameter, buffer or input has this name; there are {listed(by_key)}"
            )
        cut = cut_by(source, annotation.dims, axes)
        found.append(Annotated(source.tensor.name, source.key, cut, annotation.priority, annotation.stored))
    return found


def listed(names) -> str:
    """The first 12 of many names, and the number of the others."""
    names = list(names)
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def cut_by(source: Source, dims: Sequence[str | None], axes: Axes) -> Cut:
    """The cut of a source by an axis or None per dim. Raises AnnotationError."""
    where, shape = f"annotation of {source.key}", source.tensor.shape
    if len(dims) != len(shape):
        raise AnnotationError(
            f"{where}: {len(dims)} dims for a tensor of shape {shape}; give an axis or None per dim"
        )
    seen: dict[str, str] = {}
    cut = []
    for d, (axis, n) in enumerate(zip(dims, shape, strict=True)):
        if axis is None:
            cut.append(canonical([(n, None)]))
            continue
        if axis not in axes.by_name:
            raise AnnotationError(f"{where}: no axis {axis!r}; there are {', '.join(axes.by_name)}")
        slot = axes.slots[axis]
        if slot in seen:
            same = "twice" if seen[slot] == axis else f"and {seen[slot]}, which never cut one tensor together"
            raise AnnotationError(f"{where}: axis {axis} {same}; leave one dim None")
        seen[slot] = axis
        cut.append(by_axis(axis, n, d, where, axes))
    return tuple(cut)


def by_axis(axis: str, n: int, d: int, where: str, axes: Axes) -> Dim:
    """A dim of n elements cut by an axis: in its major factor if the extent divides n, else by scaled blocks."""
    if n % axes.by_name[axis].extent == 0 or axes.fits(axis, n):
        return axes.major(axis, n)
    raise AnnotationError(
        f"{where}: dim {d} has {n} elements, too few for the {axes.by_name[axis].blocks} blocks of axis {axis}; "
        "give it fewer blocks, or leave the dim None"
    )


def require_agreement(node: Node, rule, origins: list[tuple[Annotated, Cut] | None]) -> None:
    """Raise AnnotationError if two annotated tensors of one priority cut a factor of an operation by different axes.

    `origins`: for each operand the annotation that reaches it through views, and the resulting cut; None without one.
    """
    by_label: dict = {}
    for labels, origin in zip(rule.operands, origins, strict=True):
        if origin is None:
            continue
        annotated, cut = origin
        for of_dim, dim in zip(labels, cut, strict=True):
            for label, part in parts(rule, of_dim, dim):
                other, had = by_label.setdefault(label, (annotated, part))
                if (
                    had[0][1] != part[0][1]
                    and other.priority == annotated.priority
                    and other is not annotated
                ):
                    raise AnnotationError(
                        f"annotations conflict at {node.name} ({node.target}{node.where and ' of ' + node.where}): "
                        f"{other.key} is cut "
                        f"{text(other.cut)} and {annotated.key} {text(annotated.cut)}, whose axes {had[0][1]} and "
                        f"{part[0][1]} meet in one factor; set one of the two dims to None, or give one annotation a "
                        "priority (the lower number wins, the other tensor is resharded)"
                    )
