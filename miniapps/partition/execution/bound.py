"""The program of a rank as data: its steps with all sizes, parts and places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from miniapps.partition.cuts.axes import Cut
from miniapps.partition.cuts.steps import STAGE, Plan
from miniapps.partition.execution.place import Part, Place, Rows, Wanted


@dataclass(frozen=True)
class Moved:
    """Moves the values `operands` to `results` with the `wanted` places of each dim, some of which other ranks may
    hold. All values are sent at once and are cut by the same axes. `early` as of `Added`. `products`: the operations
    whose first operand is the only result, on rows that arrive in `parts` (`rings`)."""

    node: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    wanted: tuple[Wanted, ...]
    early: bool = False
    products: tuple[Operation, ...] = ()
    parts: int = 1


@dataclass(frozen=True)
class Called:
    """One call of an operation. `parts`: of each operand (None: whole); `partials`: which partial of each operand;
    `into`: (partial, part) of each result; `shape`: of the first result of this call; `sides`: places before the first
    window (see `Operation`); `where`: the places along each letter of a manual region."""

    parts: tuple[Part | None, ...]
    partials: tuple[int | None, ...]
    into: tuple[tuple[int | None, Part | None], ...]
    shape: tuple[int, ...]
    sides: tuple[int, ...] = ()
    padding: tuple[tuple[Part, ...], ...] = ()
    where: tuple[tuple[str, tuple[int, ...]], ...] = ()


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
    list of sums of subtrees; `early`: it begins here, and ends before the first step that reads a total; `product`: the
    operation that makes its only operand, in `parts` of its rows (`rings`); `cuts`: of the operands, if they are such a
    part."""

    node: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    rows: Rows
    combine: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    wanted: tuple[Wanted | None, ...]
    merged: tuple[bool, ...]
    early: bool = False
    product: Operation | None = None
    parts: int = 1
    cuts: tuple[Cut, ...] = ()


@dataclass(frozen=True)
class Outgoing:
    """Sends a value to the rank at place `peer` along the stages. `tag`: tells the messages of a step apart; `shape`:
    of the array, or of each of the `count` arrays of a partial value."""

    node: str
    name: str
    peer: int
    tag: int
    shape: tuple[int, ...]
    dtype: str
    count: int | None

    @property
    def results(self) -> tuple[str, ...]:
        """The values that exist after the step."""
        return (self.name,)


@dataclass(frozen=True)
class Incoming(Outgoing):
    """Receives what the rank at place `peer` sent."""


BoundStep = Moved | Operation | Added | Outgoing | Incoming


@dataclass(frozen=True)
class Bound:
    """The program of one rank."""

    plan: Plan
    place: Place
    by_block: bool
    steps: tuple[BoundStep, ...]
    merged: frozenset[str]  # partial values kept as sums of subtrees

    @property
    def gradients(self) -> tuple[tuple[str, str], ...]:
        """(key, value) of the gradients of this rank's stages."""
        return self._own("parameter", self.plan.gradients)

    @property
    def updates(self) -> tuple[tuple[str, str], ...]:
        """(key, value) of the updates of buffers of this rank's stages."""
        return self._own("buffer", self.plan.updates)

    @property
    def leaving(self) -> list[str]:
        """The values that the step returns on this rank: loss, gradients, updates."""
        return [self.plan.loss, *(name for _, name in (*self.gradients, *self.updates))]

    def _own(self, kind: str, pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        names = {s.key: s.tensor.name for s in self.plan.sources if s.kind == kind}
        return tuple((key, name) for key, name in pairs if self.has(names[key]))

    def has(self, name: str) -> bool:
        """Whether a value belongs to a stage of this rank."""
        if not self.plan.stages:
            return True
        return not set(self.plan.stages[name]).isdisjoint(self.place.own[STAGE])

    def shape(self, name: str) -> tuple[int, ...]:
        """The local shape of a value."""
        return self.place.shape(self.plan.values[name].cut)
