"""The requests between ranks in a step: rows of tables, by sample."""

from __future__ import annotations

from collections.abc import Sequence
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
    def ordered(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows, samples) of all received bags, in the order of the samples of the batch and of the rows in a bag."""
        every = concatenated(self.came)
        rows, samples = every.rows, np.repeat(np.concatenate(self.numbers), every.lengths)
        if (np.diff(samples) < 0).any():
            order = np.argsort(samples, kind="stable")
            return rows[order], samples[order]
        return rows, samples

    @cached_property
    def distinct(self) -> tuple[np.ndarray, np.ndarray]:
        """(the distinct received rows, ascending; the index of each row of `ordered` among these)."""
        return np.unique(self.ordered[0], return_inverse=True)

    def vectors(self, bags: Bags) -> np.ndarray:
        """The indices of the bags that send a vector: all or, if bags may be cut, those that are not empty."""
        every = np.arange(len(bags.lengths))
        return every if self.places is None else np.flatnonzero(bags.lengths)


def requested(
    placed: Placed, rank: int, bags: Bags, learn: bool
) -> tuple[dict[int, Bags], np.ndarray | None]:
    """(`Asked.sent`, `Asked.places`) for a rank's `bags` of one table. With `learn`, also the bags of a replicated
    table, whose gradients will follow."""
    if placed.by_rows:
        return _by_owner(placed, bags)
    local = placed.sharding == "replicated" and not learn
    return dict.fromkeys([rank] if local else placed.holders(), bags), None


def requests(sent: Sequence[dict[int, Bags]], size: int) -> list[np.ndarray]:
    """The message to each of `size` ranks, int32: lengths and rows of the bags of all tables, of `Asked.sent`."""
    return [
        np.concatenate(
            [_NOTHING, *(x for of in sent if p in of for x in (of[p].lengths, of[p].rows))], dtype=np.int32
        )
        for p in range(size)
    ]


def received(
    placed: Sequence[Placed],
    rank: int,
    numbers: Sequence[np.ndarray],
    streams: Sequence[np.ndarray],
    learn: bool,
) -> list[list[Bags]]:
    """`Asked.came` of each table, from the `requests` of every rank to this one."""
    every, at = [], [0] * len(numbers)
    for of in placed:
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
        every.append(came)
    return every


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
