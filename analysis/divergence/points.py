"""The result of comparing two runs: rows that differ, rows that one run lacks, and how much was compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.divergence.recorded import LAST
from analysis.runs import Id
from miniapps.trace.records import ADDED, TOTAL

FINAL = "final state"  # the name of a point at which the hashes in result.json differ


@dataclass(frozen=True)
class Point:
    """A row whose bits differ in two runs.

    `occurrence` counts rows of equal step, name and block from 0. `rank_a` and `rank_b` recorded the row. This step,
    name and occurrence has `recorded` blocks; `differing` of them differ. `a` and `b` are the numbers, NaN for
    fingerprints. `step_b` is the step in the second run, if that run counts steps differently."""

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
    step_b: int | None = None

    @property
    def steps(self) -> tuple[int, int]:
        """The step in both runs."""
        return self.step, self.step if self.step_b is None else self.step_b


@dataclass(frozen=True)
class Lone:
    """A row that `run` recorded and the other run lacks, although it must have it."""

    run: Id
    step: int
    name: str
    block: int
    occurrence: int
    seq: int


@dataclass(frozen=True)
class Comparison:
    """The result of comparing two (run, repeat), `a` and `b`.

    fingerprint, value   the first row of each table that differs; None: all are equal
    messages     the first receive from any source that took another rank's message
    order        the first recorded order of arrival that differs: step, reduction, call, and both orders
    final        the step after which the hashes of the final states differ
    values       the differing values of the block and step of `fingerprint`; if there are none, the global values of
                 that step that differ
    largest      the value of a block with the largest relative difference in that step; if a global sum carried the
                 difference into every block, this block is nearest to its origin
    compared     number of rows of fingerprints and values that both have; `results` of them are states and results
    only_a, only_b   rows in one run alone
    through      the last step of rows in both, -1 without any
    lacks_a, lacks_b   rows that the run must have and lacks; `lone`: the first of them
    recordings   differences of methods and recordings, in words
    ended        True if both hashed the final state of the same step
    left_out     names in both that are not compared at every step. Names in `moved` are compared before the step
                 `parted`, in which the runs begin to make different calls; the others never, since ranks added
                 arrays of their own
    counted      True if steps count calls of all ranks: one place of the program may have another step in each run
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
    counted: bool = False

    @property
    def differs(self) -> bool:
        """True if a fingerprint, a value, the source of a message or the final state differs."""
        return self.first is not None

    @property
    def comparable(self) -> bool:
        """True if there is a verdict: the runs differ, or neither lacks a row."""
        return self.differs or self.lone is None

    @property
    def equal(self) -> bool:
        """True if neither run lacks a row, and all common rows have the same bits."""
        return self.comparable and not self.differs

    @property
    def first(self) -> Point | None:
        """The earliest of `fingerprint`, `messages` and `value`, else the final state; None if nothing differs.

        Within a step this order decides; but `messages` precedes contributions and totals, which may follow from it."""
        points = [point for point in (self.fingerprint, self.messages, self.value) if point is not None]
        first = min(points, key=lambda point: point.step, default=None)
        if first is not None and self.messages is not None and self.messages.step == first.step:
            return self.messages if first.name.startswith((ADDED, TOTAL)) else first
        if first is None and self.final is not None:
            return Point(self.final, FINAL, -1, 0, 0, 0, LAST, 1, 1)
        return first

    @property
    def part(self) -> Point:
        """The first difference. Raises ValueError if there is none."""
        if self.first is None:
            raise ValueError(f"{self.a} and {self.b} do not differ")
        return self.first

    @property
    def when(self) -> tuple[int, ...]:
        """A key that sorts comparisons by their first difference."""
        return (
            self.part.step,
            self.part.name == FINAL,
            self.part is self.value,
            self.part.seq,
            self.part.block,
        )
