"""A tree as an indented outline that shows equal subtrees once: readable for thousands of terms."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from kernels.tree import NoOrder, Tree, canonical, fold

SHOWN = 8  # operands, or groups of equal operands, shown of one node


class Part(NamedTuple):
    """A subtree. Parts with equal `shape` differ only by an offset of all indices; `first` is the least index."""

    shape: int
    first: int
    size: int
    depth: int
    children: tuple[Part, ...]


def outline(tree: Tree | NoOrder) -> list[str]:
    """The lines of the outline, with operands in the order of their least index. For a sum without an order, a sentence
    and an outline of the partial sums whose order is known."""
    if isinstance(tree, NoOrder):
        known = [part for part in tree.parts if isinstance(part, tuple)]
        lines = [line for part in known[:SHOWN] for line in _indented(outline(part))]
        more = [f"  ... {len(known) - SHOWN} more, not shown"] if len(known) > SHOWN else []
        return [f"{tree}:" if known else str(tree), *lines, *more]
    shapes: dict[tuple[tuple[int, int], ...], int] = {}

    def node(children: list[Part]) -> Part:
        first = children[0].first
        key = tuple((child.shape, child.first - first) for child in children)
        shape = shapes.setdefault(key, len(shapes) + 1)
        size, depth = sum(child.size for child in children), 1 + max(child.depth for child in children)
        return Part(shape, first, size, depth, tuple(children))

    return _lines(fold(canonical(tree), lambda index: Part(0, index, 1, 0, ()), node))


def _lines(part: Part) -> list[str]:
    if not part.children:
        return [f"x[{part.first}]"]
    if len(part.children) > 2:
        return _operands("at once", list(part.children))
    strides, inner = [], part
    while len(inner.children) == 2 and inner.children[0].shape == inner.children[1].shape:
        strides.append(inner.children[1].first - inner.children[0].first)
        inner = inner.children[0]
    if len(strides) > 1:
        apart = f"{_listed(strides)} apart"
        if not inner.children:
            return [f"binary tree over {2 ** len(strides)} terms, x[{part.first}] and those {apart}"]
        head = f"binary tree over {2 ** len(strides)} alike, {apart}; the first of {inner.size} terms:"
        return [head, *_indented(_lines(inner))]
    return _operands("left to right", _spine(part))


def _spine(part: Part) -> list[Part]:
    """t0, t1, t2, ... of a sum ((t0 + t1) + t2) + ..., where t1, t2, ... are all leaves, or none is."""
    operands: list[Part] = []
    while len(part.children) == 2:
        b, a = sorted(part.children, key=lambda child: (child.depth, -child.first))
        if operands:
            last = operands[-1]
            if (b.depth == 0) != (last.depth == 0):
                break
            if a.shape == b.shape != last.shape:  # a separate binary tree
                break
        operands.append(b)
        part = a
        if a.depth == b.depth:
            break
    return [part, *reversed(operands)]


def _operands(how: str, operands: list[Part]) -> list[str]:
    groups = _groups(operands)
    if len(groups) == 1:
        return _group(groups[0], how)
    terms = sum(part.size for part in operands)
    lines = [f"{len(operands)} operands, {how if len(operands) > 2 else 'added'}, {terms} terms in all:"]
    hidden = groups[SHOWN - 1 : -1] if len(groups) > SHOWN else []
    for group in [g for g in groups if g not in hidden]:
        if hidden and group is groups[-1]:
            lines.append(f"  ... {sum(map(len, hidden))} operands more, not shown")
        text = _group(group, "one by one" if how == "left to right" else how)
        if len(group) == 1 and group[0].size > 1 and len(text) == 1:
            text = [f"({text[0]})"]  # a sum inside the sum
        lines += _indented(text)
    return lines


def _group(group: list[Part], how: str) -> list[str]:
    """The lines for operands of equal shape."""
    if group[0].size == 1:
        return [_row(group, how)]
    if len(group) == 1:
        return _lines(group[0])
    how = how if len(group) > 2 else "added"
    head = f"{len(group)} alike, {how}, {_places(group)}; the first of {group[0].size} terms:"
    return [head, *_indented(_lines(group[0]))]


def _places(group: list[Part]) -> str:
    if _evenly(group):
        return f"{group[1].first - group[0].first} apart"
    names = [f"x[{part.first}]" for part in group]
    return f"from {', '.join(names if len(names) <= SHOWN else [*names[: SHOWN - 1], '...', names[-1]])} on"


def _groups(operands: list[Part]) -> list[list[Part]]:
    """Groups of consecutive operands of one shape; single terms form a group only with evenly spaced indices."""
    groups: list[list[Part]] = []
    for part in operands:
        last = groups[-1] if groups else []
        if last and last[-1].shape == part.shape and (part.size > 1 or _evenly([*last[-2:], part])):
            last.append(part)
        else:
            groups.append([part])
    return groups


def _evenly(parts: list[Part]) -> bool:
    return len({b.first - a.first for a, b in pairwise(parts)}) == 1


def _row(leaves: list[Part], how: str) -> str:
    sign = ", " if how == "at once" else " + "
    names = [f"x[{part.first}]" for part in leaves]
    if len(names) < 5:
        return sign.join(names)
    return f"{sign.join([*names[:2], '...', names[-1]])}: {len(names)} terms, {how}"


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
