"""The program of a rank as data: the steps that it carries out, with all sizes, parts and places filled in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from miniapps.partition.cuts.axes import Cut
from miniapps.partition.cuts.steps import Plan
from miniapps.partition.execution.place import Part, Place, Rows, Wanted


@dataclass(frozen=True)
class Moved:
    """The values `operands` as this rank needs them in `results`: of each the `wanted` places of each dim, of which
    others may hold some. They travel at once; several are cut by the same axes."""

    node: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    wanted: tuple[Wanted, ...]


@dataclass(frozen=True)
class Called:
    """One call of an operation: of each operand the part (None: all of it) and which of its partials, of each result
    where it goes; `shape` is that of the first result of this call, `sides` places before the first window (see
    `Operation`)."""

    parts: tuple[Part | None, ...]
    partials: tuple[int | None, ...]
    into: tuple[tuple[int | None, Part | None], ...]
    shape: tuple[int, ...]
    sides: tuple[int, ...] = ()
    padding: tuple[tuple[Part, ...], ...] = ()


@dataclass(frozen=True)
class Operation:
    """An operation of this rank: `calls`, none where it has no blocks. Arguments are those of the plan, "%k" operand k.

    `shapes`: of the results, and of each of their partials. `counts`: how many partials a result has, None where it is
    one array. A convolution has the target `conv.output`, `conv.input` or `conv.weight`, and arguments (x, weight;
    gradient, weight; image, gradient; then stride, dilation, groups); `sides` are the zeros before its first place.
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
    """Partial operands added over all blocks of `rows.axes` on all ranks; `shapes`: of operands, `wanted`: the cut of
    each total of which this rank keeps its part, None where that is all it has. `merged`: which operands are sums of
    subtrees."""

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
    merged: frozenset[str]  # partial values that are kept as sums of subtrees

    def shape(self, name: str) -> tuple[int, ...]:
        """The local shape of a value."""
        return self.place.shape(self.plan.values[name].cut)
