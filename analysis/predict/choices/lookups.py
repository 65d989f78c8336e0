"""What a step of tables of embeddings costs under a sharding: work on each rank, and what work costs.

A lookup costs c0 + D bytes / BW(h): a call for each row, and its bytes at the bandwidth of the cache for the share h
that is found there, of memory for the rest. h follows from the histogram of the real indices by Che's approximation of
a cache that evicts the least recently used rows (Che et al. 2002). Updates cost the same of their lookups, and messages
by their bytes. All of it is linear in the rates, so that these are fitted to measured steps, without negative ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq, nnls

FLOAT = NUMBER = 4  # bytes of a weight, of a row number or the length of a bag
SHARDINGS = ("replicated", "table", "column", "row", "row-pooled")
# The counted work of a rank, for the tables of each sharding apart, which other code handles: tables, tables
# that it holds, rows that it looks up and updates, their bytes in the cache and in memory, bytes of distinct rows that
# change, rows or sums that it puts together for its own samples, and their bytes.
OF_TABLE = ("tables", "held", "rows", "cached", "missed", "changed", "bags", "assembled")
# And of all tables: bytes of messages; 1.
WORK = (*(f"{sharding}: {name}" for sharding in SHARDINGS for name in OF_TABLE), "messages", "step")
ROUNDS = 8  # of fitting, in each of which the rank that takes longest is chosen anew


@dataclass(frozen=True)
class Load:
    """What a table is asked for in a step of `samples` samples with `lookups` rows in all.

    `classes` float64 (n, 2): rows that are asked for about alike, how many there are, and their share of the lookups in
    all. `shares` float64 (blocks,): of the lookups, by block of rows.
    """

    name: str
    rows: int
    columns: int
    samples: float
    lookups: float
    classes: np.ndarray
    shares: np.ndarray

    def distinct(self, lookups: float) -> float:
        """Rows that so many lookups meet at least once."""
        rows, share = self.classes.T
        return float((rows * -np.expm1(-lookups * share / rows)).sum())

    def hits(self, room: float) -> float:
        """The share of lookups that a cache answers which holds `room` rows."""
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
        """Rows of a bag, in the mean."""
        return self.lookups / max(self.samples, 1.0)


def work(load: Load, sharding: str, size: int, cache: float, rank: int = 0, word: int = FLOAT) -> np.ndarray:
    """float64 (size, len(WORK)): what one table is for each of `size` ranks under a sharding.

    `rank`: the one rank that holds it, if there is one; `cache`: bytes of a rank's cache; `word`: bytes of an element
    of a sum of a part of a bag. Ranks get equally many samples. Raises ValueError for an unknown sharding.
    """
    own, others = load.samples / size, size - 1
    asked = NUMBER * (own + load.lookups / size)  # bytes of the rows that a rank asks another for, if for all
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
        # Of the samples of a rank those that ask another one; rows that go from a rank to another, or come.
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
    """How many of `count` each of `size` has, the first ones one more."""
    return count // size + (np.arange(size) < count % size)


@dataclass(frozen=True)
class Rates:
    """Seconds of each kind of WORK; `spread`: the standard deviation of ln(measured / predicted) of a step, and `apart`
    that of the ratio of two steps of one problem under two shardings."""

    seconds: np.ndarray
    spread: float
    apart: float

    def of_rank(self, counted: np.ndarray) -> np.ndarray:
        """Seconds of work (..., len(WORK)), without what every step takes."""
        return counted @ self.seconds

    @property
    def step(self) -> float:
        """Seconds that every step takes."""
        return float(self.seconds[WORK.index("step")])


def fit(counted: Sequence[np.ndarray], seconds: Sequence[float], problems: Sequence[int]) -> Rates:
    """Rates from measured steps: `counted[i]` (ranks, len(WORK)) of all tables, `seconds[i]` of the whole step, and the
    problem it is of. A step takes as long as the rank that takes longest. Relative least squares, no rate negative.
    Raises ValueError for fewer steps than rates, or times that are not positive."""
    y = np.asarray(seconds, float)
    if len(y) < len(WORK) or not (np.isfinite(y) & (y > 0)).all():
        raise ValueError(
            f"{len(y)} steps cannot tell {len(WORK)} rates, or a time is not positive; measure more"
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
