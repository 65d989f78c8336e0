"""Computes the published metrics for pairs of runs at their end, for whole cells at once.

In a cell of up to ALL runs every pair is compared. In a larger cell each run is compared with the NEXT runs that follow
it, cyclically, so that the work grows with the number of runs and not with its square.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from analysis.divergence.kinds import TABLES, kinds
from analysis.ends import final, names
from analysis.groups import grouped
from analysis.load.frames import Frames
from analysis.runs import Id, ids, label
from kernels import bits

EACH_OTHER = "each other"
NEXT = 500  # following runs with which each run of a large cell is compared
ALL = 2 * NEXT + 1  # the most runs for which these are all pairs
CHUNK = 2**16  # elements compared at once: they stay in the cache of a core

PAIRS = {"group": "str", "cell": "str", "name": "str", "kind": "str", "step": "int32", "against": "str",
         "a": "str", "b": "str", "elements": "int64", "v_c": "float64", "v_s": "float64", "v_ermv": "float64",
         "max_ulp": "float64", "mean_ulp": "float64", "undefined": "int64"}  # fmt: skip
TEXTS = [key for key, dtype in PAIRS.items() if dtype == "str"]
METRICS = ("v_c", "v_s", "v_ermv", "max_ulp", "mean_ulp", "undefined")


@dataclass(frozen=True)
class Pairs:
    """Pairs of runs of one cell, compared by their last records of `name` in the table `kind`, in `step`.

    `against` is EACH_OTHER or the label of the reference. `a`, `b` (n,): places of the runs in `labels`; `left`,
    `right` (n,): places of their records in `words` (outcomes, elements, words)."""

    group: str
    cell: str
    name: str
    kind: str
    against: str
    step: int
    labels: list[str]
    a: np.ndarray
    b: np.ndarray
    left: np.ndarray
    right: np.ndarray
    words: np.ndarray

    def __len__(self) -> int:
        return len(self.a)

    @property
    def elements(self) -> int:
        """The number of blocks or values in which each pair is compared."""
        return self.words.shape[1]

    @cached_property
    def differing(self) -> bool:
        """True if any pair differs."""
        return bool((self.left != self.right).any())

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """METRICS of each pair, computed on each access.

        `v_c` is the fraction of blocks or elements whose bits differ. The other metrics are of values, NaN for
        fingerprints; `v_s` exists only for a single element."""
        count = len(self.words)
        if count * count <= len(self):  # fewer outcomes than pairs
            both = np.divmod(np.arange(count * count), count)
            known = metrics_of(self.kind, self.words, *both)
            at = self.left.astype(np.int64) * count + self.right
            return {key: column[at] for key, column in known.items()}
        return metrics_of(self.kind, self.words, self.left, self.right)

    def frame(self, categories: dict[str, list[str]]) -> pd.DataFrame:
        """The pairs as rows with the columns PAIRS; texts are categoricals of `categories`."""
        columns: dict[str, object] = {"step": self.step, "elements": self.elements, **self.metrics}
        for key in TEXTS:
            if key in ("a", "b"):
                columns[key] = pd.Categorical.from_codes(getattr(self, key), categories[key])
            else:
                code = categories[key].index(getattr(self, key))
                codes = np.full(len(self), code, np.int32)
                columns[key] = pd.Categorical.from_codes(codes, categories[key])
        dtypes = {key: dtype for key, dtype in PAIRS.items() if key not in TEXTS}
        return pd.DataFrame(columns, index=range(len(self)))[list(PAIRS)].astype(dtypes)


def reference(runs: pd.DataFrame) -> Id | None:
    """The default reference of the `grouped` runs of one problem; None if there is none.

    It is the first complete run of the strongest guarantee, at least `run`, without an injected fault."""
    complete = runs[runs["complete"] & ~runs["faulty"]]
    for level in ("exact", "layout", "run"):
        if candidates := ids(complete[complete["guarantee"] == level]):
            return candidates[0]
    return None


def pairs(frames: Frames, against: Id | None = None) -> list[Pairs]:
    """Compares every complete run with others of its cell, and with the reference of its problem.

    `Pairs.against` distinguishes the two: EACH_OTHER is variation from run to run; with the label of the reference the
    algorithm differs too (not for the cell of the reference). The reference is `against`, or if that is None or of
    another problem, `reference`."""
    return list(_pairs(frames, against))


def _pairs(frames: Frames, against: Id | None) -> Iterator[Pairs]:
    runs = grouped(frames.runs)
    labels = list(map(label, ids(frames.runs)))
    recorded = [(table, name) for table in TABLES for name in names(frames, table)]
    for _, problem in runs[runs["complete"]].groupby(["app", "problem"], sort=False):
        chosen = against if against in ids(problem) else reference(problem)
        for (group, cell), members in problem.groupby(["group", "cell"], sort=False):
            own = tuple(ids(members))
            i, j = of_each_other(len(own))
            at = np.array([frames.places[run] for run in own], np.int32)
            a, b = at[i], at[j]  # the same for all names
            for table, name in recorded:
                where = (group, cell, name, table)
                if len(own) > 1 and (last := final(frames, table, name, own)):
                    step, outcome, words = last
                    outcome = outcome.astype(np.int32)
                    yield Pairs(*where, EACH_OTHER, step, labels, a, b, outcome[i], outcome[j], words)
                if chosen is not None and chosen not in own:
                    yield from _to_reference(frames, where, labels, chosen, own)


def _to_reference(
    frames: Frames, where: tuple[str, str, str, str], labels: list[str], chosen: Id, runs: tuple[Id, ...]
) -> Iterator[Pairs]:
    """Compares each of `runs` with `chosen`, kind by kind, so that only kinds with other blocks are left out."""
    _, _, name, table = where
    for kind in kinds(frames, runs):
        if last := final(frames, table, name, (chosen, *kind)):
            step, outcome, words = last
            b = np.array([frames.places[run] for run in kind], np.int32)
            a = np.full(len(b), frames.places[chosen], np.int32)
            left = np.zeros(len(b), np.int64)
            yield Pairs(*where, label(chosen), step, labels, a, b, left, outcome[1:], words)


def of_each_other(runs: int) -> tuple[np.ndarray, np.ndarray]:
    """(i, j) with i < j of the pairs of `runs` runs that are compared: int64, sorted."""
    if runs <= ALL:
        return np.triu_indices(runs, 1)
    after = []
    for i in range(runs):
        last = min(i + NEXT, runs - 1)
        round_ = np.arange(
            max(last + 1, i + runs - NEXT), runs
        )  # `i` is among the NEXT that follow these, cyclically
        after.append(np.concatenate([np.arange(i + 1, last + 1), round_]))
    return np.repeat(np.arange(runs), list(map(len, after))), np.concatenate(after)


def frame_of(compared: Iterable[Pairs]) -> pd.DataFrame:
    """All pairs as rows with the columns PAIRS; texts are categoricals."""
    own = list(compared)
    if not own:
        return pd.DataFrame(columns=list(PAIRS))
    categories = {
        key: own[0].labels if key in ("a", "b") else list(dict.fromkeys(getattr(each, key) for each in own))
        for key in TEXTS
    }
    return pd.concat([each.frame(categories) for each in own], ignore_index=True)


def metrics_of(kind: str, words: np.ndarray, left: np.ndarray, right: np.ndarray) -> dict[str, np.ndarray]:
    """METRICS of pairs (n,) of places in `words` (outcomes, elements, words)."""
    n, elements = len(left), words.shape[1]
    found = {key: np.full(n, np.nan) for key in METRICS[:-1]} | {"undefined": np.zeros(n, np.int64)}
    values = kind == "values"
    x = words[:, :, 0].view(np.float64) if values else np.empty(0)
    regular = values and bool((np.isfinite(x) & (x != 0)).all())
    ranks = bits.ranks(x) if regular else np.empty(0)
    step = max(1, CHUNK // max(elements, 1))
    for begin in range(0, n, step):
        at = slice(begin, begin + step)
        i, j = left[at], right[at]
        if regular:
            of = _of_regular(x[i], x[j], ranks[i], ranks[j])
        else:
            changed = np.any(words[i] != words[j], axis=2)
            of = {"v_c": changed.mean(axis=1)}
            if values:
                distance = bits.ulp_distance(x[i], x[j])
                of["v_ermv"], of["undefined"] = bits.v_ermv(x[i], x[j])
                of["max_ulp"], of["mean_ulp"] = bits.largest(distance), bits.mean(distance)
        if values and elements == 1:
            of["v_s"] = bits.v_s(x[i, 0], x[j, 0])
        for key, column in of.items():
            found[key][at] = column
    return found


def _of_regular(x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    """`metrics_of` for finite, nonzero numbers `x`, `y` (n, elements) and their `bits.ranks` `a`, `b`.

    Faster, since no metric is undefined, and equal numbers have distance 0."""
    elements = x.shape[1]
    distance = np.maximum(a, b) - np.minimum(a, b)
    number = distance.astype(np.float64)
    with np.errstate(over="ignore"):
        v_ermv = (np.abs(x - y) / np.abs(x)).sum(axis=-1) / elements
    return {
        "v_c": np.count_nonzero(distance, axis=1) / elements,
        "v_ermv": v_ermv,
        "max_ulp": number.max(axis=-1),
        "mean_ulp": number.sum(axis=-1) / elements,
    }
