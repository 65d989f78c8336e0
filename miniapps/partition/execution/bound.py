"""The program of a rank as data: its steps with all sizes, parts and places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from miniapps.partition.cuts.axes import Cut
from miniapps.partition.cuts.steps import Plan
from miniapps.partition.execution.place import Part, Place, Rows, Wanted


@dataclass(frozen=True)
class Moved:
    """Moves the values `operands` to `results` with the `wanted` places of each dim, some of which other ranks may
    hold. All values are sent at once and are cut by the same axes."""

    node: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    wanted: tuple[Wanted, ...]


@dataclass(frozen=True)
class Called:
    """One call of an operation. `parts`: of each operand (None: whole); `partials`: which partial of each operand;
    `into`: (partial, part) of each result; `shape`: of the first result of this call; `sides`: places before the first
    window (see `Operation`)."""

    parts: tuple[Part | None, ...]
    partials: tuple[int | None, ...]
    into: tuple[tuple[int | None, Part | None], ...]
    shape: tuple[int, ...]
    sides: tuple[int, ...] = ()
    padding: tuple[tuple[Part, ...], ...] = ()


@dataclass(frozen=True)
class Operation:
    """An operation of this rank: its `calls`, none without blocks. Arguments are those of the plan, "%k" is operand k.

    `shapes`: of the results, or of each of their partials. `counts`: number of partials of a result, None for one
    array. A convolution has the target `conv.output`, `conv.input` or `conv.weight`, and the arguments (x, weight),
    (gradient, weight) or (image, gradient), then stride, dilation, groups; `sides`: zeros before its first place.
    """

    node: str
    target: str
    kernel: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    operands: tuple[str, ...]
    results: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    counts: tuple[int | None, ...]
    calls: tuple[Called, ...]
    dtypes: tuple[str, ...]
    wanted: tuple[Wanted, ...] = ()
    fill: float | None = None


@dataclass(frozen=True)
class Added:
    """Adds partial operands over all blocks of `rows.axes` on all ranks. `shapes`: of the operands; `wanted`: the cut
    of each total, of which this rank keeps its part, None for an unchanged cut; `merged`: whether each operand is a
    list of sums of subtrees."""

    node: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    rows: Rows
    combine: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    wanted: tuple[Cut | None, ...]
    merged: tuple[bool, ...]


BoundStep = Moved | Operation | Added


@dataclass(frozen=True)
class Bound:
    """The program of one rank."""

    plan: Plan
    place: Place
    by_block: bool
    steps: tuple[BoundStep, ...]
    merged: frozenset[str]  # partial values kept as sums of subtrees

    def shape(self, name: str) -> tuple[int, ...]:
        """The local shape of a value."""
        return self.place.shape(self.plan.values[name].cut)
