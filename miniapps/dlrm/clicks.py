"""Drawn samples for DLRM: rows by Zipf's law, or by lookups that a run recorded; labels by a model of the rows.

Sample s is drawn by a Philox generator whose counter depends on s, so that it is the same on every rank, whatever else
is drawn. Test samples have numbers that training never reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from math import ceil

import numpy as np

from kernels.elementary import exponential, logarithm
from miniapps.dlrm.ratings import Ratings
from miniapps.embeddings.bags import Bags
from miniapps.embeddings.sharding import Table
from miniapps.learning.seeds import CLICKS, generator
from miniapps.untrusted.lookups import Asked

TESTED, FIRST_TESTED = 2048, 2**40  # the number of test samples, and the index of the first
TO_UNIT = 2.0**-64
STRENGTH = 3.0  # the influence of rows on labels
MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of splitmix64 (Steele et al. 2014)


@dataclass(frozen=True)
class Lookups:
    """How the rows of a table are drawn: bags of `mean` rows, and of one more or fewer if that is no integer.
    `cumulated` float64 (n,): cumulated probabilities of n rows, the last is 1; `number(ranks)`: the numbers of rows
    from their places among these."""

    mean: float
    cumulated: np.ndarray
    number: Callable[[np.ndarray], np.ndarray]

    @property
    def most(self) -> int:
        """The most rows in a bag."""
        return ceil(self.mean)


def by_zipf(seed: int, tables: int, rows: int, exponent: float, pooling: int) -> list[Lookups]:
    """Tables of `rows` rows with bags of `pooling`. The row of rank k is drawn with probability proportional to
    k^-exponent. Each table has its own permutation from ranks to rows, so that neighbouring rows have different
    frequencies."""
    cumulated = np.cumsum(exponential(-exponent * logarithm(np.arange(1.0, rows + 1))))
    cumulated /= cumulated[-1]
    # Multiplication by a number that is coprime to `rows` permutes the rows.
    steps = generator(seed, CLICKS, 1).integers(1, max(2, rows), tables)
    factors = [_coprime(int(step), rows) for step in steps]
    return [Lookups(pooling, cumulated, partial(_permuted, rows, factor)) for factor in factors]


def as_recorded(asked: Asked) -> Lookups:
    """The lookups of a table that a run recorded: as many rows with as many lookups each, in as many rows of a bag on
    average, and as many in each block of rows, as nearly as whole rows can."""
    count, share = np.array(asked.classes, float).T
    count = np.maximum(np.round(count), 1).astype(np.int64)
    order = np.argsort(-share / count, kind="stable")  # the most popular rows first
    weights = np.repeat((share / count)[order], count[order])[: asked.rows]
    starts = Table(asked.name, asked.rows, asked.columns, len(asked.shares)).starts.tolist()
    # Each row, the most popular first, goes to the block that lacks most of its share, and has room.
    lacking = [(-part, block) for block, part in enumerate(asked.shares)]
    heapify(lacking)
    taken, numbers = starts[:-1], np.empty(len(weights), np.int64)
    for k, weight in enumerate(weights.tolist()):
        part, block = heappop(lacking)
        numbers[k], taken[block] = taken[block], taken[block] + 1
        if taken[block] < starts[block + 1]:
            heappush(lacking, (part + weight, block))
    cumulated = np.cumsum(weights if weights.any() else np.ones(len(weights)))
    return Lookups(asked.lookups / max(asked.samples, 1.0), cumulated / cumulated[-1], numbers.__getitem__)


class Clicks:
    """Samples with `features` dense numbers and a bag of rows in each table of `tables`."""

    def __init__(self, seed: int, tables: Sequence[Lookups], features: int):
        self.seed, self.tables, self.features = seed, tables, features
        self._uneven = [of for of in tables if of.most != of.mean]
        words = 1 + features + sum(of.most for of in tables) + len(self._uneven)
        self._words = -(-words // 4) * 4  # a step of Philox makes four words

    def take(self, first: int, count: int) -> Ratings:
        """`count` samples from index `first` on."""
        philox = np.random.Philox(key=[self.seed, CLICKS], counter=first * (self._words // 4))
        drawn = philox.random_raw(count * self._words).reshape(count, self._words) * TO_UNIT
        dense = (2.0 * drawn[:, 1 : 1 + self.features] - 1.0).astype(np.float32)
        at = 1 + self.features
        last = at + sum(of.most for of in self.tables)
        bags, hidden = [], np.zeros(count, np.int64)
        for t, of in enumerate(self.tables):
            uniform = drawn[:, at : at + of.most]
            at += of.most
            ranks = np.minimum(np.searchsorted(of.cumulated, uniform), len(of.cumulated) - 1)
            rows = of.number(ranks).reshape(count, of.most)
            lengths = np.full(count, of.most, np.int32)
            if of.most != of.mean:
                lengths -= drawn[:, last] >= of.mean - (of.most - 1)
                last += 1
            kept = np.arange(of.most) < lengths[:, None]
            bags.append(Bags(lengths, rows[kept].astype(np.int32)))
            hidden += np.where(kept, self._hidden(rows, t), 0).sum(axis=1)
        chance = 1.0 / (1.0 + exponential(-STRENGTH * (hidden / 2**30) / np.sqrt(self._mean or 1.0)))
        return Ratings(dense, bags, (drawn[:, 0] < chance).astype(np.uint8))

    @property
    def _mean(self) -> float:
        """Mean number of rows of a sample."""
        return sum(of.mean for of in self.tables)

    def _hidden(self, rows: np.ndarray, table: int) -> np.ndarray:
        """A hidden number of every row, from which labels follow. These are integers, so that the order of their sum
        does not matter."""
        x = rows.astype(np.uint64) + (np.uint64(table) << np.uint64(32)) + np.uint64(self.seed)
        for factor, shift in zip(MIX, (30, 27), strict=True):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        return (x >> np.uint64(33)).astype(np.int64) - 2**30


def _permuted(rows: int, factor: int, ranks: np.ndarray) -> np.ndarray:
    return ranks * factor % rows


def _coprime(number: int, of: int) -> int:
    while np.gcd(number, of) != 1:
        number += 1
    return number
