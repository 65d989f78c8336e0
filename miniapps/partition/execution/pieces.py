"""Parts of tensors in the source of a program, and the complete sums of a tree after a number of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from miniapps.partition.execution.bound import Called
from miniapps.partition.execution.place import Part


def joins(begin: int, end: int, done: int) -> int:
    """The number of sums of the subtree [begin, end) that block `done` - 1 completes."""
    count = 0

    def walk(first: int, stop: int) -> None:
        nonlocal count
        if stop - first < 2:
            return
        middle = first + (1 << ((stop - first - 1).bit_length() - 1))
        if stop == done:
            count += 1
        if done <= middle:
            walk(first, middle)
        else:
            walk(middle, stop)

    walk(begin, end)
    return count


def partial_of(call: Called, number: int, r: int) -> Called:
    """The call whose result r is partial `number`."""
    into = tuple((number, part) if k == r else (at, part) for k, (at, part) in enumerate(call.into))
    return replace(call, into=into)


def filled(x, parts: Sequence[Part], value: float):
    """A copy of a tensor with these parts set to `value`."""
    x = x.clone(memory_format=torch.contiguous_format)
    for part in parts:
        view = x.view(part.factors)
        for dim, begin, length in part.ranges:
            view = view.narrow(dim, begin, length)
        view.fill_(value)
    return x


def narrowed(part: Part) -> tuple[int, ...]:
    """The shape of a part in its factors."""
    lengths = list(part.factors or ())
    for dim, _, length in part.ranges:
        lengths[dim] = length
    return tuple(lengths)


def cut(variable: str, part: Part) -> str:
    """The source text of a part of a variable."""
    text = variable if part.factors is None else f"{variable}.view({part.factors!r})"
    for dim, begin, length in part.ranges:
        text += f".narrow({dim}, {begin}, {length})"
    return text if part.factors is None or not part.shape else f"{text}.reshape({part.shape!r})"
