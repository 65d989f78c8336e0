"""Cost of a step with tables of embeddings under a sharding: the work of each rank, and the seconds per unit of work.

A lookup costs c0 + D bytes / BW(h): a call for each row, and its bytes. The share h comes from the cache, the rest from
memory, each at its bandwidth. h follows from the histogram of the real indices, by Che's approximation of a
least-recently-used cache (Che et al. 2002). An update costs as much as its lookup, a message in proportion to its
bytes. The cost is linear in the rates, so nonnegative least squares fits the rates to measured steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq, nnls

FLOAT = NUMBER = 4  # bytes of a weight, of a row number or the length of a bag
SHARDINGS = ("replicated", "table", "column", "row", "row-pooled")
# The counted work of a rank. Each sharding has its own counts, since each runs other code: tables, tables that the rank
# holds, rows that it looks up and updates, their bytes in the cache and in memory, bytes of distinct rows that change,
# rows or sums that it assembles for its own samples, and their bytes.
OF_TABLE = ("tables", "held", "rows", "cached", "missed", "changed", "bags", "assembled")
# Counts over all tables: bytes of messages, and 1 for the step.
WORK = (*(f"{sharding}: {name}" for sharding in SHARDINGS for name in OF_TABLE), "messages", "step")
ROUNDS = 8  # rounds of the fit; each one selects the slowest rank again


@dataclass(frozen=True)
class Load:
    """The lookups of one table in a step of `samples` samples: `lookups` rows in total.

    `classes` float64 (n, 2): for each class of rows of about the same frequency, the number of rows and their share of
    all lookups. `shares` float64 (blocks,): the share of all lookups, by block of rows.
    """

    name: str
    rows: int
    columns: int
    samples: float
    lookups: float
    classes: np.ndarray
    shares: np.ndarray

    def distinct(self, lookups: float) -> float:
        """The expected number of distinct rows among `lookups` lookups."""
        rows, share = self.classes.T
        return float((rows * -np.expm1(-lookups * share / rows)).sum())

    def hits(self, room: float) -> float:
        """The share of lookups that a cache of `room` rows answers."""
        rows, share = self.classes.T
        if room >= rows.sum():
            return 1.0
        if room <= 0:
            return 0.0

        def held(time: float) -> float:
            return float((rows * -np.expm1(-time * share / rows)).sum()) - room

        most = 1.0
        while held(most) < 0 and most < 1e18:
            most *= 4.0
        time = brentq(held, 0.0, most) if held(most) > 0 else most
        return float((share * -np.expm1(-time * share / rows)).sum())

    @cached_property
    def pooling(self) -> float:
        """Mean number of rows in a bag."""
        return self.lookups / max(self.samples, 1.0)


def work(load: Load, sharding: str, size: int, cache: float, rank: int = 0, word: int = FLOAT) -> np.ndarray:
    """float64 (size, len(WORK)): the work of each of `size` ranks for one table under a sharding.

    `rank`: the rank that holds the whole table under the sharding `table`; `cache`: bytes of a rank's cache; `word`:
    bytes of an element of a partial sum of a bag. All ranks have equally many samples. Raises ValueError for an unknown
    sharding.
    """
    own, others = load.samples / size, size - 1
    asked = NUMBER * (own + load.lookups / size)  # bytes of a rank's request to another rank for all its rows
    vector = FLOAT * load.columns
    widths, held = np.full(size, float(load.columns)), np.ones(size)
    looked = updated = np.full(size, load.lookups)
    bags = np.full(size, own)
    if sharding == "replicated":
        looked, bags = looked / size, np.zeros(size)
        sent = np.full(size, 2.0 * others * (asked + own * vector))
    elif sharding == "table":
        held = (np.arange(size) == rank).astype(float)
        looked = updated = held * load.lookups
        there = (1 - held) * (asked + 2 * own * vector)  # between a rank and the one that holds the table
        sent = there + held * there.sum()
    elif sharding == "column":
        widths = _evenly(load.columns, size).astype(float)
        held = (widths > 0).astype(float)
        looked = updated = held * load.lookups
        parts = held.sum() - held  # other ranks that hold something
        vectors = 2 * FLOAT * own * (widths * others + load.columns - widths)
        sent = asked * (parts + held * others) + vectors
    elif sharding in ("row", "row-pooled"):
        owner = np.repeat(np.arange(size), _evenly(len(load.shares), size))
        share = np.bincount(owner, load.shares, minlength=size)
        held = (np.bincount(owner, minlength=size) > 0).astype(float)
        looked = updated = load.lookups * share
        # Samples of a rank that need rows of another rank; then rows that a rank sends or receives.
        touched = own * -np.expm1(load.pooling * np.log1p(-np.minimum(share, 1 - 1e-9)))
        partners = held * others + held.sum() - held
        away = (looked * others + load.lookups - looked) / size
        vectors = touched * others + touched.sum() - touched
        answers = vector * away if sharding == "row" else word * load.columns * vectors
        bags = np.full(size, load.lookups / size if sharding == "row" else touched.sum())
        sent = NUMBER * (own * partners + away) + answers + vector * vectors
    else:
        raise ValueError(f"unknown sharding {sharding!r}; choose one of {', '.join(SHARDINGS)}")
    weight = FLOAT * widths
    hits = np.array([load.hits(cache / max(width, 1.0)) for width in weight])
    changed = load.distinct(load.lookups) * updated / max(load.lookups, 1.0)
    counted = dict(
        tables=np.ones(size), held=held, rows=looked, cached=looked * weight * hits,
        missed=looked * weight * (1 - hits), changed=changed * weight, bags=bags, assembled=bags * vector,
    )  # fmt: skip
    out = np.zeros((size, len(WORK)))
    for name, column in counted.items():
        out[:, WORK.index(f"{sharding}: {name}")] = column
    out[:, WORK.index("messages")] = sent
    return out


def _evenly(count: int, size: int) -> np.ndarray:
    """`count` divided evenly among `size` ranks; the first ranks get the remainder."""
    return count // size + (np.arange(size) < count % size)


@dataclass(frozen=True)
class Rates:
    """Seconds of each kind of WORK. Standard deviations: `spread` of ln(measured / predicted) of a step, `apart` of the
    logarithm of the ratio of two steps of one problem under two shardings."""

    seconds: np.ndarray
    spread: float
    apart: float

    def of_rank(self, counted: np.ndarray) -> np.ndarray:
        """Seconds of the work `counted` (..., len(WORK)), without the constant time of a step."""
        return counted @ self.seconds

    @property
    def step(self) -> float:
        """The constant time of a step in seconds."""
        return float(self.seconds[WORK.index("step")])


def fit(counted: Sequence[np.ndarray], seconds: Sequence[float], problems: Sequence[int]) -> Rates:
    """Fits rates to measured steps by relative nonnegative least squares.

    Step i has the work `counted[i]` (ranks, len(WORK)) over all tables, takes `seconds[i]` and belongs to
    `problems[i]`. A step takes as long as its slowest rank. Raises ValueError for fewer steps than rates, or times that
    are not positive."""
    y = np.asarray(seconds, float)
    if len(y) < len(WORK) or not (np.isfinite(y) & (y > 0)).all():
        raise ValueError(
            f"{len(y)} steps do not determine {len(WORK)} rates, or a time is not positive; measure more steps"
        )
    every = [np.array(of, float) for of in counted]
    for of in every:
        of[:, WORK.index("step")] = 1.0
    chosen = np.stack([of[np.argmax(of.sum(axis=1))] for of in every])
    for _ in range(ROUNDS):
        scale = np.maximum(np.abs(chosen / y[:, None]).max(axis=0), 1e-300)
        found, _ = nnls(chosen / y[:, None] / scale, np.ones(len(y)))
        rates = found / scale
        again = np.stack([of[np.argmax(of @ rates)] for of in every])
        if (again == chosen).all():
            break
        chosen = again
    error = np.log(y) - np.log([float((of @ rates).max()) for of in every])
    numbers = np.asarray(problems)
    within = np.concatenate([error[numbers == p] - error[numbers == p].mean() for p in np.unique(numbers)])
    free = max(len(y) - len(np.unique(numbers)), 1)
    return Rates(rates, float(error.std()), float(np.sqrt(2.0 * (within**2).sum() / free)))
