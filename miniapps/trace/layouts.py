"""Selects the comparable records of two runs with other numbers of ranks or other owners of blocks.

| record | compared |
|---|---|
| data, messages or contributions of a single rank | no |
| the total of a reduction | if all ranks of both runs took part, with the same operation |
| data that all ranks hold or gather together (`global:`) | yes: the name states count and type |
| other records between states | if all reductions of both runs were over all ranks |
| any of these with another number of elements or another type | no |

The steps of a program under `fpna run` count collective calls on all ranks. A communicator may have all ranks of one
run and only some of another. Then one place of the program has two steps: `align` matches them by the order of calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np

from miniapps.trace.records import GLOBAL, NODE, PASSING, SOURCE, TOTAL, WATCHED, is_state

# Contributions of whole ranks, which depend on the blocks that each owns (miniapps.runner.watch).
OF_A_RANK = re.compile(r"added:.* by rank \d+ of \d+")
NOWHERE = -1  # stands for a step that the other run lacks


@dataclass(frozen=True)
class Layout:
    """The number of ranks of a run, and its statements about `options` and `reductions`."""

    size: int
    options: Mapping[str, Mapping[str, Any]]
    reductions: Mapping[str, Mapping[str, Any]]

    @cached_property
    def of_ranks(self) -> list[str]:
        """The rows that depend on which blocks a rank owns, as TABLE:NAME."""
        stated = (option for option in self.options.values() if option.get("of_ranks"))
        return [rows for option in stated for rows in option.get("records", ())]

    @property
    def counts_calls(self) -> bool:
        """Whether steps count the collective calls of a program under `fpna run`."""
        return f"values:{SOURCE}*" in self.of_ranks

    @cached_property
    def own_arrays(self) -> bool:
        """Whether any reduction was over fewer than all ranks."""
        return any(map(self.over_few, self.reductions.values()))

    def over_few(self, stated: Mapping[str, Any]) -> bool:
        """Whether this reduction was over fewer than all ranks."""
        return 0 < int(stated.get("ranks", 0)) < self.size


def of_a_rank(table: str, name: str, a: Layout, b: Layout) -> bool:
    """Whether records of this name depend on the blocks that a rank owns."""
    return bool(OF_A_RANK.fullmatch(name)) or any_matches([*a.of_ranks, *b.of_ranks], table, name)


def partial(name: str, a: Layout, b: Layout) -> bool:
    """Whether the record `name` between states covers only some ranks in one of the runs."""
    if name.startswith(GLOBAL):
        return False
    one, other = (run.reductions.get(name.removeprefix(TOTAL)) for run in (a, b))
    if not name.startswith(TOTAL) or not one or not other:
        return a.own_arrays or b.own_arrays
    return a.over_few(one) or b.over_few(other) or one.get("operation") != other.get("operation")


def resized(name: str, a: Layout, b: Layout) -> bool:
    """Whether shape or dtype of the reduction whose total is `name` differ between the runs, in its first call."""
    one, other = (run.reductions.get(name.removeprefix(TOTAL), {}) for run in (a, b))
    return any(one.get(key) != other.get(key) for key in ("shape", "dtype"))


def any_matches(stated: Iterable[str], table: str, name: str) -> bool:
    """Whether the `stated` rows of options include a row of this table and name. Patterns match records of states and
    of watched models only, unless they name records between states."""
    own = is_state(name) or name.startswith(WATCHED)
    return any((own or of_passing(rows)) and fnmatchcase(f"{table}:{name}", rows) for rows in stated)


def of_passing(rows: str) -> bool:
    """Whether the stated `rows` are records between states."""
    return rows.partition(":")[2].startswith((*PASSING, NODE))


@dataclass(frozen=True)
class Alignment:
    """The steps of a first run `a` and a second run `b` at the same places of the program.

    `a`, `b`: equal places, ascending, int64 (n,). After the last one, steps of the first run are larger by `shift`.
    `parted`: the step of the first run from which the calls differ; None if they never do.
    """

    a: np.ndarray
    b: np.ndarray
    shift: int = 0
    parted: int | None = None

    def in_a(self, steps: np.ndarray) -> np.ndarray:
        """The steps of the first run that correspond to `steps` of the second; NOWHERE for none."""
        steps = np.asarray(steps, np.int64)
        at = np.searchsorted(self.b, steps)
        beyond = at == len(self.b)
        if not len(self.b):
            return steps + self.shift
        at[beyond] = 0
        return np.where(beyond, steps + self.shift, np.where(self.b[at] == steps, self.a[at], NOWHERE))


def align(a: np.ndarray, b: np.ndarray) -> Alignment:
    """Aligns two runs by their calls `a` and `b`: (step, name) of each call, int64 (2, n), sorted and unique.

    Calls match as long as both runs have the same names in the same order, and calls of one step in one run share a
    step in the other.
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
