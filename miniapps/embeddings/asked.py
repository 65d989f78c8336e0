"""The requests between ranks in a step: rows of tables, by sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from miniapps.embeddings.bags import Bags, concatenated
from miniapps.embeddings.sharding import Placed


@dataclass
class Asked:
    """The requested rows of one table in a step. `numbers[r]` holds the samples of the batch, from 0, that rank r has,
    ascending.

    For the rank's samples: `bags`, their bags; `sent[p]`, the part of these bags whose rows rank p has; and, if a bag
    may be cut, `places`, the places in `bags` of the sent rows, in ascending order of ranks. For the rank's rows:
    `came[q]`, the bags received from rank q.
    """

    numbers: Sequence[np.ndarray]
    bags: Bags
    sent: dict[int, Bags]
    places: np.ndarray | None
    came: list[Bags]

    @cached_property
    def received(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows, samples) of all received bags, in the order of the samples of the batch and of the rows in a bag."""
        every = concatenated(self.came)
        rows, samples = every.rows, np.repeat(np.concatenate(self.numbers), every.lengths)
        if (np.diff(samples) < 0).any():
            order = np.argsort(samples, kind="stable")
            return rows[order], samples[order]
        return rows, samples

    @cached_property
    def distinct(self) -> tuple[np.ndarray, np.ndarray]:
        """(the distinct received rows, ascending; the index of each row of `received` among these)."""
        return np.unique(self.received[0], return_inverse=True)

    def vectors(self, bags: Bags) -> np.ndarray:
        """The indices of the bags that send a vector: all or, if bags may be cut, those that are not empty."""
        every = np.arange(len(bags.lengths))
        return every if self.places is None else np.flatnonzero(bags.lengths)


def ask(
    placed: Sequence[Placed],
    rank: int,
    bags: Sequence[Bags],
    numbers: Sequence[np.ndarray],
    learn: bool,
    exchange: Callable[[list[np.ndarray]], list[np.ndarray]],
) -> list[Asked]:
    """Send to every rank of `placed` the requests for its rows: `bags` of this rank's samples, for each table. With
    `learn`, also send the bags of replicated tables, whose gradients will follow. `exchange` sends an int32 vector to
    each rank and returns one from each rank. Collective."""
    size = len(numbers)
    sent: list[dict[int, Bags]] = []
    places: list[np.ndarray | None] = []
    for of, own in zip(placed, bags, strict=True):
        if of.by_rows:
            by_rank, order = _by_owner(of, own)
            sent.append(by_rank)
            places.append(order)
        else:
            local = of.sharding == "replicated" and not learn
            sent.append(dict.fromkeys([rank] if local else of.holders(), own))
            places.append(None)
    streams = exchange(
        [
            np.concatenate(
                [_NOTHING, *(x for of in sent if p in of for x in (of[p].lengths, of[p].rows))],
                dtype=np.int32,
            )
            for p in range(size)
        ]
    )
    asked, at = [], [0] * size
    for of, own, by_rank, where in zip(placed, bags, sent, places, strict=True):
        came = []
        for q, stream in enumerate(streams):
            count = len(numbers[q])
            if rank not in of.holders() or (of.sharding == "replicated" and not learn and q != rank):
                came.append(Bags(np.zeros(count, np.int32), _NOTHING))
                continue
            lengths = stream[at[q] : at[q] + count]
            begin = at[q] + count
            at[q] = begin + int(lengths.sum())
            came.append(Bags(lengths, stream[begin : at[q]]))
        asked.append(Asked(numbers, own, by_rank, where, came))
    return asked


def _by_owner(placed: Placed, bags: Bags) -> tuple[dict[int, Bags], np.ndarray]:
    """({rank: the part of the bags whose rows it has}, the places of these rows in the bags, in order of ranks)."""
    owner = placed.rows(0).owner_of(bags.rows)
    order = np.argsort(owner, kind="stable")
    n, size = len(bags.lengths), placed.size
    lengths = np.bincount(owner * n + bags.samples, minlength=size * n).reshape(size, n).astype(np.int32)
    ends = np.cumsum(lengths.sum(axis=1))
    rows = np.split(bags.rows[order], ends[:-1])
    return {p: Bags(lengths[p], rows[p]) for p in placed.holders()}, order


_NOTHING = np.empty(0, np.int32)
