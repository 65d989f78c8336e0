"""Drawn samples for DLRM: rows by Zipf's law, labels by a model of the rows.

Sample s is drawn by a Philox generator whose counter depends on s, so that it is the same on every rank, whatever else
is drawn. Test samples have numbers that training never reaches.
"""

from __future__ import annotations

import numpy as np

from kernels.elementary import exponential, logarithm
from miniapps.dlrm.ratings import Ratings
from miniapps.embeddings.bags import Bags
from miniapps.learning.seeds import CLICKS, generator

TESTED, FIRST_TESTED = 2048, 2**40  # the number of test samples, and the index of the first
TO_UNIT = 2.0**-64
STRENGTH = 3.0  # the influence of rows on labels
MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of splitmix64 (Steele et al. 2014)


class Clicks:
    """Samples with `features` dense numbers and bags of `pooling` rows in each of `tables` tables of `rows` rows.

    The row of rank k in a table is drawn with probability proportional to k^-exponent. Each table has its own
    permutation from ranks to rows, so that neighbouring rows have different frequencies.
    """

    def __init__(self, seed: int, tables: int, rows: int, exponent: float, pooling: int, features: int):
        self.seed, self.tables, self.rows, self.pooling, self.features = seed, tables, rows, pooling, features
        share = exponential(-exponent * logarithm(np.arange(1.0, rows + 1)))
        self._cumulated = np.cumsum(share)
        self._cumulated /= self._cumulated[-1]
        words = 1 + features + tables * pooling
        self._words = -(-words // 4) * 4  # a step of Philox makes four words
        # Multiplication by a number that is coprime to `rows` permutes the rows.
        steps = generator(seed, CLICKS, 1).integers(1, max(2, rows), tables)
        self._steps = np.array([_coprime(int(step), rows) for step in steps], np.int64)

    def take(self, first: int, count: int) -> Ratings:
        """`count` samples from index `first` on."""
        philox = np.random.Philox(key=[self.seed, CLICKS], counter=first * (self._words // 4))
        drawn = philox.random_raw(count * self._words).reshape(count, self._words) * TO_UNIT
        dense = (2.0 * drawn[:, 1 : 1 + self.features] - 1.0).astype(np.float32)
        uniform = drawn[:, 1 + self.features : 1 + self.features + self.tables * self.pooling]
        ranks = np.searchsorted(self._cumulated, uniform).reshape(count, self.tables, self.pooling)
        rows = np.minimum(ranks, self.rows - 1) * self._steps[:, None] % self.rows
        lengths = np.full(count, self.pooling, np.int32)
        bags = [
            Bags(lengths, np.ascontiguousarray(rows[:, t], np.int32).reshape(-1)) for t in range(self.tables)
        ]
        return Ratings(dense, bags, (drawn[:, 0] < self._chance(rows)).astype(np.uint8))

    def _chance(self, rows: np.ndarray) -> np.ndarray:
        """The probability of label 1, from a hidden number of every row. These are integers, so that the order of
        their sum does not matter."""
        x = (
            rows.astype(np.uint64)
            + (np.arange(self.tables, dtype=np.uint64) << np.uint64(32))[:, None]
            + np.uint64(self.seed)
        )
        for factor, shift in zip(MIX, (30, 27), strict=True):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        hidden = ((x >> np.uint64(33)).astype(np.int64) - 2**30).sum(axis=(1, 2)) / 2**30
        return 1.0 / (1.0 + exponential(-STRENGTH * hidden / np.sqrt(self.tables * self.pooling)))


def _coprime(number: int, of: int) -> int:
    while np.gcd(number, of) != 1:
        number += 1
    return number
