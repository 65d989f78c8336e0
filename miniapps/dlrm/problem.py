"""The problem of DLRM: its tables, and its samples at each step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from miniapps.dlrm import clicks, perceptrons, ratings, recorded
from miniapps.dlrm.config import RECORDED
from miniapps.dlrm.ratings import Ratings
from miniapps.embeddings.sharding import SHARDINGS, Placed, Table, parse, place
from miniapps.learning.samples.batches import Batches
from miniapps.learning.seeds import TABLES, generator


def tables(data: str, embeddings) -> list[Table]:
    """The tables for the samples `data`; `embeddings` is a `config.Embeddings`, or an object with the same
    attributes."""
    if data == "ml-100k":
        named = zip(ratings.FIELDS, ratings.ROWS, strict=True)
        return [Table(name, rows, embeddings.columns, embeddings.blocks) for name, rows in named]
    if data == RECORDED:
        return [
            Table(str(t), of.rows, embeddings.columns, embeddings.blocks, of.lookups / max(of.samples, 1.0))
            for t, of in enumerate(recorded.read(embeddings.lookups))
        ]
    return [
        Table(str(t), embeddings.rows, embeddings.columns, embeddings.blocks, embeddings.pooling)
        for t in range(embeddings.tables)
    ]


def features(data: str, embeddings) -> int:
    """The number of dense features of a sample."""
    return len(ratings.FEATURES) if data == "ml-100k" else embeddings.features


def shapes(data: str, hidden: int, embeddings) -> dict[str, tuple[int, ...]]:
    """Shapes of the weights and biases of both perceptrons."""
    count = len(tables(data, embeddings))
    return perceptrons.shapes(hidden, embeddings.columns, features(data, embeddings), count)


def placed(config, options, size: int) -> list[Placed]:
    """The placement of the tables on ranks. Raises ChoiceError."""
    of_all = tables(config.data.name, config.embeddings)
    return place(of_all, parse(config.embeddings.sharding, len(of_all), size), size, options.shuffle_blocks)


def allowed(config, options) -> list[str]:
    """The shardings whose sums keep the guarantee: parts of a bag are summed by rank only if their order is free."""
    in_order = config.model.aggregate == "sorted" and options.policy.per_block
    return [name for name in SHARDINGS if name != "row-pooled" or not in_order]


def drawn(table: Table, number: int, block: int, seed: int) -> np.ndarray:
    """The initial weights of a block of rows, float32, uniform between -1 / sqrt(rows) and 1 / sqrt(rows), as in the
    authors' code."""
    starts = table.starts
    shape = int(starts[block + 1] - starts[block]), table.columns
    return (generator(seed, TABLES, number, block).random(shape, np.float32) * 2 - 1) * np.float32(
        1.0 / math.sqrt(table.rows)
    )


def given(config) -> Ratings | None:
    """The ratings; None if samples are drawn. Raises UsageError without the files."""
    return ratings.load(config.data.dir) if config.data.name == "ml-100k" else None


class Samples:
    """The samples of each step and of tests, which depend only on the seeds and their numbers. `given` holds the
    ratings, or is None if samples are drawn."""

    def __init__(self, config, given: Ratings | None):
        self._training, own = config.training, config.embeddings
        self._given, self._drawn = given, None
        self.drawn, self.different = (
            given is None,
            1,
        )  # whether samples are drawn, from how many rows of a table
        if given is None:
            if config.data.name == RECORDED:
                lookups = [clicks.as_recorded(of) for of in recorded.read(own.lookups)]
            else:
                lookups = clicks.by_zipf(config.seeds.data, own.tables, own.rows, own.zipf, own.pooling)
            self._drawn = clicks.Clicks(config.seeds.data, lookups, own.features)
            self.different = max(len(of.cumulated) for of in lookups)
            self.tested = clicks.TESTED
            return
        test = ratings.is_test(len(given.labels))
        self._learned, self._test = np.flatnonzero(~test), np.flatnonzero(test)
        self._batches = Batches(
            len(self._learned), self._training.batch, self._training.micro, config.seeds.data
        )
        self.tested = len(self._test)

    def block(self, step: int, block: int) -> Ratings:
        """Micro-batch `block` of a step."""
        if self._drawn is not None:
            first = (step - 1) * self._training.batch + block * self._training.micro
            return self._drawn.take(first, self._training.micro)
        assert self._given is not None
        return self._given.take(self._learned[self._batches.images(step, block)])

    def test(self, first: int, count: int) -> Ratings:
        """`count` test samples from index `first` on."""
        if self._drawn is not None:
            return self._drawn.take(clicks.FIRST_TESTED + first, count)
        assert self._given is not None
        return self._given.take(self._test[first : first + count])


def digests(given: Ratings | None) -> list[tuple[str, Any]]:
    """(name, array) of the input data; none if samples are drawn."""
    if given is None:
        return []
    return [("dense", given.dense), ("labels", given.labels), *(
        (f"rows.{name}", bags.rows) for name, bags in zip(ratings.FIELDS, given.bags, strict=True)
    )]  # fmt: skip
