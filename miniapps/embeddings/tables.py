"""All tables over all ranks: lookups of bags for the samples of every rank, and updates of rows by gradients.

A step has three messages in each direction between each pair of ranks, for any number of tables: the requested rows,
the answers, and the gradients. The rank of a row sorts requests and gradients by the samples of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import numpy as np
from mpi4py import MPI

from kernels.exact import Limbs, range_of
from miniapps.embeddings import sums
from miniapps.embeddings.asked import Asked, received, requested, requests
from miniapps.embeddings.bags import Bags
from miniapps.embeddings.shard import Shard
from miniapps.embeddings.sharding import Placed
from miniapps.layout.messages import all_to_all

LOOKUP, SCATTER = "lookup", "scatter"
ROWS, ANSWERS, GRADIENTS = MESSAGES = ("exchange.rows", "exchange.answers", "exchange.gradients")
WORD, FLOAT = 8, 4  # bytes of a word of a sum, of a float32


def _untimed(region: str, nbytes: int) -> AbstractContextManager:
    return nullcontext()


class Tables:
    """The tables of `placed` over the ranks of `comm`, all with the same number of columns. Construction is collective.

    `order` is the order of sums, one of `sums.ORDERS`. `draw(table, block)` is as in `Shard`. `timed(region, nbytes)`
    returns a context around each part of a step (LOOKUP, SCATTER and MESSAGES); `nbytes` are those of rows, or those
    sent to other ranks. `asked`: the requests of the last `look_up`, by table.
    """

    def __init__(
        self,
        comm,
        placed: Sequence[Placed],
        order: str,
        draw: Callable[[int, int], np.ndarray] | None,
        timed: Callable[[str, int], AbstractContextManager] = _untimed,
    ):
        self._comm, self.placed, self.columns = comm.Dup(), list(placed), placed[0].table.columns
        self._timed, self._order, self._exact = timed, order, order == "exact"
        self.rank, self.size = comm.rank, comm.size
        self.shards = [
            Shard(of, comm.rank, None if draw is None else partial(draw, number))
            for number, of in enumerate(placed)
        ]
        self.asked: list[Asked] = []

    def look_up(self, bags: Sequence[Bags], numbers: Sequence[np.ndarray], learn: bool = True) -> np.ndarray:
        """float32 (own samples, tables, columns): the sums of `bags`, this rank's bags for each table.

        `numbers[r]` holds the samples of the batch, from 0, that rank r has, ascending. `learn`: whether `update`
        follows. Collective.
        """
        sent = [self.requested(t, own, learn) for t, own in enumerate(bags)]
        streams = self._exchange(ROWS, requests([own for own, _ in sent], self.size), None)
        came = received(self.placed, self.rank, numbers, streams, learn)
        self.asked = [
            Asked(numbers, own, *asked, answered)
            for own, asked, answered in zip(bags, sent, came, strict=True)
        ]
        with self._timed(LOOKUP, self._nbytes(local=True)):
            looked = [self.looked(t) for t in range(len(self.placed))]
        limbs = self.agreed([x if self._in_words(t) else None for t, x in enumerate(looked)])
        with self._timed(LOOKUP, self._nbytes(local=True)):
            pieces = [self.answers(t, looked[t], limbs[t]) for t in range(len(self.placed))]
        coming = [
            sum(self._answer_bytes(t, p, limbs[t]) for t in range(len(self.placed))) if p != self.rank else 0
            for p in range(self.size)
        ]
        parts = self._sent(ANSWERS, pieces, coming)
        with self._timed(LOOKUP, sum(map(len, parts))):
            return self.stacked(
                [self.assembled(t, parts, pieces[t], limbs[t]) for t in range(len(self.placed))]
            )

    def update(self, gradients: np.ndarray, scale: float, rate: float) -> None:
        """w = w - rate (scale g) for every row that was looked up, where g is the sum of its gradients. `gradients`
        float32 (own samples, tables, columns) are those of the sums of bags. Collective, after `look_up`."""
        every = range(len(self.placed))
        limbs = self.agreed([gradients[:, t] if self._exact else None for t in every])
        with self._timed(SCATTER, gradients.nbytes):
            pieces = [self.cut(t, gradients[:, t], limbs[t]) for t in every]
        coming = [
            sum(self._gradient_bytes(t, q, limbs[t]) for t in every) if q != self.rank else 0
            for q in range(self.size)
        ]
        came = self._sent(GRADIENTS, pieces, coming)
        with self._timed(SCATTER, self._nbytes()):
            for t, shard in enumerate(self.shards):
                if shard.weights.size:
                    rows = self.distinct(t)
                    self.learn(t, rows, self.summed(t, came, pieces[t], limbs[t]), scale, rate)

    def free(self) -> None:
        """Free the communicator. Collective."""
        self._comm.Free()

    # ---- lookups of a table: by the rank of the rows, then by the rank of the samples

    def requested(self, t: int, bags: Bags, learn: bool) -> tuple[dict[int, Bags], np.ndarray | None]:
        """What this rank asks of each rank for its `bags` of a table: `Asked.sent`, `Asked.places`."""
        return requested(self.placed[t], self.rank, bags, learn)

    def looked(self, t: int) -> np.ndarray:
        """The requested rows of a table, own columns: those of this rank's samples if the table is replicated, in the
        order of the requests if answers are rows, else in the order of the samples of the batch."""
        of, asked, shard = self.placed[t], self.asked[t], self.shards[t]
        if of.sharding == "replicated":
            rows = asked.bags.rows
        elif of.sharding == "row":
            rows = np.concatenate([bags.rows for bags in asked.came])
        else:
            rows = asked.ordered[0]
        return shard.look_up(rows)

    def _in_words(self, t: int) -> bool:
        """Whether the sums of parts of bags are sent as words."""
        return self._exact and self.placed[t].sharding == "row-pooled"

    def answers(self, t: int, looked: np.ndarray, limbs: Limbs | None) -> dict[int, np.ndarray]:
        """The answer of this rank to each rank: rows, sums of bags, or sums of parts of bags."""
        of, asked = self.placed[t], self.asked[t]
        if not self.shards[t].weights.size:
            return {}
        if of.sharding == "replicated":
            return {self.rank: self._pooled(looked, asked.bags.samples, len(asked.bags.lengths))}
        if of.sharding == "row":
            ends = np.cumsum([len(bags.rows) for bags in asked.came])
            return dict(enumerate(np.split(looked, ends[:-1])))
        count = sum(map(len, asked.numbers))
        if limbs:
            pooled = limbs.added(looked, asked.ordered[1], count)
        else:
            pooled = self._pooled(looked, asked.ordered[1], count)
        return {q: pooled[asked.numbers[q][asked.vectors(bags)]] for q, bags in enumerate(asked.came)}

    def _pooled(self, rows: np.ndarray, samples: np.ndarray, count: int) -> np.ndarray:
        return sums.added(rows, samples, count, self._order)

    def _answer_bytes(self, t: int, p: int, limbs: Limbs | None) -> int:
        """Bytes of the answer from rank p to this rank."""
        of, asked = self.placed[t], self.asked[t]
        if of.sharding == "replicated" or p not in asked.sent:
            return 0
        bags = asked.sent[p]
        if of.sharding == "row":
            return FLOAT * self.columns * len(bags.rows)
        size = WORD * limbs.words if limbs else FLOAT
        return size * of.width(p) * len(asked.vectors(bags))

    def assembled(
        self, t: int, came: list[Came], own: dict[int, np.ndarray], limbs: Limbs | None
    ) -> np.ndarray:
        """float32 (own samples, columns): the sums of this rank's bags, from the answers of all holders."""
        of, asked = self.placed[t], self.asked[t]
        count = len(asked.bags.lengths)
        if of.sharding == "replicated":
            return own[self.rank]
        parts = [
            own[p]
            if p == self.rank
            else came[p].next(self._answer_bytes(t, p, limbs), of.width(p), limbs.words if limbs else 0)
            for p in asked.sent
        ]
        if not of.by_rows:
            return np.concatenate(parts, axis=1)
        every = np.concatenate(parts)
        if of.sharding == "row":
            rows = np.empty_like(every)
            rows[asked.places] = every
            return self._pooled(rows, asked.bags.samples, count)
        samples = np.concatenate([asked.vectors(bags) for bags in asked.sent.values()])
        if limbs:
            return limbs.rounded(sums.words_added(every, samples, count))
        return sums.added(every, samples, count, self._order)

    def stacked(self, pooled: Sequence[np.ndarray]) -> np.ndarray:
        """float32 (own samples, tables, columns): the sums of all tables together."""
        return np.stack(pooled, axis=1)

    # ---- gradients of a table: by the rank of the samples, then by the rank of the rows

    def cut(self, t: int, gradient: np.ndarray, limbs: Limbs | None) -> dict[int, np.ndarray]:
        """The message to each rank: the gradient of each sample, or exact sums by row if these have fewer bytes."""
        of, asked = self.placed[t], self.asked[t]
        parts = {}
        for p, bags in asked.sent.items():
            vectors = asked.vectors(bags)
            own = np.ascontiguousarray(gradient[vectors][:, of.columns(p)])
            if limbs and self._summed_first(asked, bags, p, limbs):
                of_row = own[np.searchsorted(vectors, bags.samples)]
                own = limbs.added(of_row, np.searchsorted(bags.distinct, bags.rows), len(bags.distinct))
            parts[p] = own
        return parts

    def _summed_first(self, asked: Asked, bags: Bags, other: int, limbs: Limbs) -> bool:
        """Whether gradients between this rank and another are added up by row before they are sent, to save bytes."""
        if other == self.rank:
            return False
        return WORD * limbs.words * len(bags.distinct) < FLOAT * len(asked.vectors(bags))

    def _gradient_bytes(self, t: int, q: int, limbs: Limbs | None) -> int:
        """Bytes of the gradients from rank q to this rank."""
        asked, width = self.asked[t], self.shards[t].weights.shape[1]
        if not self.shards[t].weights.size:
            return 0
        bags = asked.came[q]
        if limbs and self._summed_first(asked, bags, q, limbs):
            return WORD * limbs.words * width * len(bags.distinct)
        return FLOAT * width * len(asked.vectors(bags))

    def distinct(self, t: int) -> np.ndarray:
        """int32 (distinct rows,): the rows of this rank that were looked up, ascending."""
        return self.asked[t].distinct[0]

    def summed(self, t: int, came: list[Came], own: dict[int, np.ndarray], limbs: Limbs | None) -> np.ndarray:
        """float32 (distinct rows, own columns): the sums of the rows' gradients over the whole batch."""
        asked, width = self.asked[t], self.shards[t].weights.shape[1]
        rows, which = asked.distinct
        every = np.zeros((sum(map(len, asked.numbers)), width), np.float32)
        words: list[tuple[np.ndarray, np.ndarray]] = []  # rows, and sums of some of their gradients
        for q, bags in enumerate(asked.came):
            nbytes = self._gradient_bytes(t, q, limbs)
            if limbs and self._summed_first(asked, bags, q, limbs):
                words.append((bags.distinct, came[q].next(nbytes, width, limbs.words)))
            else:
                part = own[q] if q == self.rank else came[q].next(nbytes, width, 0)
                every[asked.numbers[q][asked.vectors(bags)]] = part
        if not limbs or not words:
            return sums.added(every[asked.ordered[1]], which, len(rows), self._order)
        total = limbs.added(every[asked.ordered[1]], which, len(rows))
        for some, part in words:
            total[np.searchsorted(rows, some)] += part
        return limbs.rounded(total)

    def learn(self, t: int, rows: np.ndarray, total: np.ndarray, scale: float, rate: float) -> None:
        """Update `rows` of a table by their summed gradients."""
        self.shards[t].learn(rows, total, scale, rate)

    # ---- messages

    def agreed(self, of_tables: Sequence[np.ndarray | None]) -> list[Limbs | None]:
        """The words for the terms of each table, from the range of the terms of all ranks; None for None.
        Collective."""
        chosen = {t: x for t, x in enumerate(of_tables) if x is not None}
        if not chosen:
            return [None] * len(of_tables)
        own = np.stack([range_of(x, len(self.asked[t].bags.rows)) for t, x in chosen.items()])
        self._comm.Allreduce(MPI.IN_PLACE, own, MPI.MAX)
        limbs = {t: Limbs.of(of, self.size) for t, of in zip(chosen, own, strict=True)}
        return [limbs.get(t) for t in range(len(of_tables))]

    def _sent(self, region: str, pieces: Sequence[dict[int, np.ndarray]], coming: list[int]) -> list[Came]:
        """Send the pieces of all tables to each other rank, and receive `coming` bytes from each."""
        parts = [
            np.concatenate(
                [
                    np.empty(0, np.uint8),
                    *(of[p].reshape(-1).view(np.uint8) for of in pieces if p in of and p != self.rank),
                ]
            )
            for p in range(self.size)
        ]
        return [Came(part) for part in self._exchange(region, parts, coming)]

    def _exchange(self, region: str, parts: list[np.ndarray], coming: list[int] | None) -> list[np.ndarray]:
        others = sum(part.nbytes for p, part in enumerate(parts) if p != self.rank)
        with self._timed(region, others):
            return all_to_all(self._comm, parts, coming)

    def _nbytes(self, local: bool = False) -> int:
        """Bytes of the rows that this rank updates or, with `local`, looks up: of a replicated table those of its own
        samples."""
        total = 0
        for of, asked, shard in zip(self.placed, self.asked, self.shards, strict=True):
            came = [asked.bags] if local and of.sharding == "replicated" else asked.came
            total += FLOAT * shard.weights.shape[1] * sum(len(bags.rows) for bags in came)
        return total


class Came:
    """The message from one rank, table after table."""

    def __init__(self, content: np.ndarray):
        self._content, self._at = content, 0

    def __len__(self) -> int:
        return len(self._content)

    def next(self, nbytes: int, columns: int, words: int) -> np.ndarray:
        """The next bytes: float32 (n, columns), or int64 (n, words, columns) if `words` is not 0."""
        begin, self._at = self._at, self._at + nbytes
        content = self._content[begin : self._at].copy()
        if words:
            return content.view(np.int64).reshape(-1, words, columns)
        return content.view(np.float32).reshape(-1, columns)
