"""What can be compared of two runs on other numbers of ranks, or in which ranks own other blocks.

| record | compared |
|---|---|
| what a rank has, gives or gets by itself | no |
| the total of a reduction | where all ranks of both runs took part, with the same operation |
| what all ranks hold or gather together (`global:`) | yes: its name says how many numbers of which type |
| other records of what passes | where all reductions of both runs were over all ranks |
| any of these, of another number of elements or another type in both | no, by its sizes |

Of programs under `fpna run` the steps count collective calls on all ranks. A communicator may have all ranks of one run
and a part of another's, so that one place of the program has two steps: `align` finds them by the order of the calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np

from miniapps.trace.records import GLOBAL, NODE, PASSING, SOURCE, TOTAL, is_state

# Contributions of a whole rank, which depend on the blocks that it owns (miniapps.runner.watch).
OF_A_RANK = re.compile(r"added:.* by rank \d+ of \d+")
NOWHERE = -1  # in place of a step that the other run does not have


@dataclass(frozen=True)
class Layout:
    """Of one run: how many ranks it has, what it states of its `options` and of its `reductions`."""

    size: int
    options: Mapping[str, Mapping[str, Any]]
    reductions: Mapping[str, Mapping[str, Any]]

    @cached_property
    def of_ranks(self) -> list[str]:
        """The rows that depend on which blocks a rank has, as TABLE:NAME."""
        stated = (option for option in self.options.values() if option.get("of_ranks"))
        return [rows for option in stated for rows in option.get("records", ())]

    @property
    def counts_calls(self) -> bool:
        """Whether steps count the collective calls of a program that runs as it is."""
        return f"values:{SOURCE}*" in self.of_ranks

    @cached_property
    def own_arrays(self) -> bool:
        """Whether ranks added up arrays of their own."""
        return any(map(self.over_few, self.reductions.values()))

    def over_few(self, stated: Mapping[str, Any]) -> bool:
        """Whether this reduction was over fewer ranks than there are."""
        return 0 < int(stated.get("ranks", 0)) < self.size


def of_a_rank(table: str, name: str, a: Layout, b: Layout) -> bool:
    """Whether records of this name depend on what a rank has."""
    return bool(OF_A_RANK.fullmatch(name)) or any_matches([*a.of_ranks, *b.of_ranks], table, name)


def partial(name: str, a: Layout, b: Layout) -> bool:
    """Whether what is passed on as `name` is not of all ranks alike, in one of the runs."""
    if name.startswith(GLOBAL):
        return False
    one, other = (run.reductions.get(name.removeprefix(TOTAL)) for run in (a, b))
    if not name.startswith(TOTAL) or not one or not other:
        return a.own_arrays or b.own_arrays
    return a.over_few(one) or b.over_few(other) or one.get("operation") != other.get("operation")


def resized(name: str, a: Layout, b: Layout) -> bool:
    """Whether the runs state another array of the reduction whose total is `name`: of its first call, where there are
    several."""
    one, other = (run.reductions.get(name.removeprefix(TOTAL), {}) for run in (a, b))
    return any(one.get(key) != other.get(key) for key in ("shape", "dtype"))


def any_matches(stated: Iterable[str], table: str, name: str) -> bool:
    """Whether a row of this table and name is among those that an option states; of states alone, unless it says what
    passes between them."""
    return any(
        (is_state(name) or of_passing(rows)) and fnmatchcase(f"{table}:{name}", rows) for rows in stated
    )


def of_passing(rows: str) -> bool:
    """Whether rows that an option states are of what passes between records."""
    return rows.partition(":")[2].startswith((*PASSING, NODE))


@dataclass(frozen=True)
class Alignment:
    """Which steps of a second run are the same place of the program as which of a first one.

    `a`, `b`: such steps, ascending, int64 (n,). Behind the last of them steps of the first run are `shift` more.
    `parted`: the step of the first run from which on the two make other calls; None where they do not.
    """

    a: np.ndarray
    b: np.ndarray
    shift: int = 0
    parted: int | None = None

    def in_a(self, steps: np.ndarray) -> np.ndarray:
        """The steps of the first run that are `steps` of the second, NOWHERE where there is none."""
        steps = np.asarray(steps, np.int64)
        at = np.searchsorted(self.b, steps)
        beyond = at == len(self.b)
        if not len(self.b):
            return steps + self.shift
        at[beyond] = 0
        return np.where(beyond, steps + self.shift, np.where(self.b[at] == steps, self.a[at], NOWHERE))


def align(a: np.ndarray, b: np.ndarray) -> Alignment:
    """The alignment of two runs whose calls are `a` and `b`: (step, name) of each, int64 (2, n), sorted and unique.

    The runs make the same calls as long as these have the same names in the same order, and calls of one step in one
    run are of one step in the other.
    """
    n = min(a.shape[1], b.shape[1])
    same = a[1, :n] == b[1, :n]
    same[1:] &= (np.diff(a[0, :n]) > 0) == (np.diff(b[0, :n]) > 0)
    other = np.flatnonzero(~same)
    end = int(other[0]) if len(other) else n
    steps_a, first = np.unique(a[0, :end], return_index=True)
    steps_b = b[0, :end][first]
    shift = int(steps_a[-1] - steps_b[-1]) if end else 0
    parted = min(int(a[0, end]), int(b[0, end]) + shift) if len(other) else None
    return Alignment(steps_a.astype(np.int64), steps_b.astype(np.int64), shift, parted)
