"""Where two runs part: rows that differ, rows that one run lacks, and the comparison of two runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.divergence.recorded import LAST
from analysis.runs import Id
from miniapps.trace.records import ADDED, TOTAL

FINAL = "final state"  # the name of a point at which the hashes in result.json differ


@dataclass(frozen=True)
class Point:
    """A row of two runs whose bits differ: `occurrence` counts rows of equal step, name and block from 0;
    the ranks are those that recorded it; `differing` of `recorded` blocks of this step, name and occurrence
    differ. `a` and `b` are the numbers, NaN for fingerprints."""

    step: int
    name: str
    block: int
    occurrence: int
    rank_a: int
    rank_b: int
    seq: int
    differing: int
    recorded: int
    a: float = np.nan
    b: float = np.nan


@dataclass(frozen=True)
class Lone:
    """A row that `run` recorded and the other run did not, although it must have."""

    run: Id
    step: int
    name: str
    block: int
    occurrence: int
    seq: int


@dataclass(frozen=True)
class Comparison:
    """Two (run, repeat), and the first row in which they differ: of fingerprints, of values, of the ranks whose
    messages receives from any source took (`messages`), and of the orders in which contributions arrived. `final` is
    the step after which the hashes of their final states differ, `ended` whether both have such a hash of one step.

    `values` are the differing values of the block and step of `fingerprint`, else of the whole at that step;
    `largest` is the value of a block with the largest relative difference in that step: where every block
    differs, since a global sum carried the difference everywhere within a step, it is nearest to the origin.
    `compared` rows of fingerprints and values were in both, `only_a` and `only_b` in one; `through` is the last
    step in both, -1 where there is none. `results` of the compared rows are of states and results, and not of what
    programs pass on; `left_out` are names of both that cannot be compared throughout: `moved` ones not from the step
    `parted` on, in which the two make other calls, the rest not at all, since ranks added arrays of their own.
    `lacks_a` and `lacks_b` rows must be in one and are only in the other, `lone` is the first of them; `recordings`
    says in what methods and recordings differ.
    """

    a: Id
    b: Id
    fingerprint: Point | None
    value: Point | None
    order: tuple[int, str, int, tuple[int, ...], tuple[int, ...]] | None
    values: tuple[Point, ...]
    largest: Point | None
    compared: int
    only_a: int
    only_b: int
    through: int
    lacks_a: int = 0
    lacks_b: int = 0
    lone: Lone | None = None
    recordings: tuple[str, ...] = ()
    messages: Point | None = None
    results: int = 0
    ended: bool = False
    final: int | None = None
    left_out: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    parted: int | None = None

    @property
    def differs(self) -> bool:
        """Whether a fingerprint, a value, the source of a message or the final state in both is another."""
        return self.first is not None

    @property
    def comparable(self) -> bool:
        """Whether something can be said: a difference is one whatever else is missing."""
        return self.differs or self.lone is None

    @property
    def equal(self) -> bool:
        """Whether both have all rows that they must, and every fingerprint and value in both has the same bits."""
        return self.comparable and not self.differs

    @property
    def first(self) -> Point | None:
        """The earliest of `fingerprint`, `messages` and `value`; of one step in this order, but `messages` before what
        ranks got or gave to a sum, which these may have changed. Else the final state."""
        points = [point for point in (self.fingerprint, self.messages, self.value) if point is not None]
        first = min(points, key=lambda point: point.step, default=None)
        if first is not None and self.messages is not None and self.messages.step == first.step:
            return self.messages if first.name.startswith((ADDED, TOTAL)) else first
        if first is None and self.final is not None:
            return Point(self.final, FINAL, -1, 0, 0, 0, LAST, 1, 1)
        return first

    @property
    def part(self) -> Point:
        """`first`, where the two part; raises ValueError for two that differ nowhere."""
        if self.first is None:
            raise ValueError(f"{self.a} and {self.b} differ nowhere, so that they part nowhere")
        return self.first

    @property
    def when(self) -> tuple[int, ...]:
        """Sorts comparisons that differ, the earliest divergence first."""
        return (
            self.part.step,
            self.part.name == FINAL,
            self.part is self.value,
            self.part.seq,
            self.part.block,
        )
