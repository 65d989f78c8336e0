"""A rank's part of one table: its rows and columns, drawn by block, and the gathering of the whole table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from miniapps.embeddings.sharding import Placed
from miniapps.layout.messages import all_to_all
from miniapps.layout.owners import contiguous_owner


class Shard:
    """The part of a table that rank `rank` holds: `weights` float32 (own rows, own columns).

    `draw(block) -> float32 (rows of the block, columns)` draws whole blocks, the same on any rank. Without it all
    weights are one zero, which `learn` leaves alone: a table of any size then takes no memory.
    """

    def __init__(self, placed: Placed, rank: int, draw: Callable[[int], np.ndarray] | None):
        self.placed, self.rank = placed, rank
        self.rows, self.columns = placed.rows(rank), placed.columns(rank)
        width = placed.width(rank)
        shape = (self.rows.m if width else 0, width)
        if draw is None:
            self.weights = np.broadcast_to(np.float32(0), shape)
            return
        self.weights = np.empty(shape, np.float32)
        if self.weights.size:
            for block, part in zip(self.rows.own.tolist(), self.rows.parts(self.weights), strict=True):
                part[...] = draw(block)[:, self.columns]

    def look_up(self, rows: np.ndarray) -> np.ndarray:
        """float32 (n, own columns): the own columns of `rows`, which this rank holds."""
        return self.weights[self._local(rows)]

    def learn(self, rows: np.ndarray, gradients: np.ndarray, scale: float, rate: float) -> None:
        """w = w - rate (scale g) of `rows`, all different, which this rank holds."""
        if not self.weights.flags.writeable:
            return
        # Works in place, with two passes over memory instead of three; each product is rounded in either case.
        slope = np.float32(scale) * gradients
        slope *= np.float32(rate)
        self.weights[self._local(rows)] -= slope

    def by_blocks(self, comm) -> list[tuple[int, np.ndarray]]:
        """(block, its rows with all columns) of some blocks, such that each block is on one rank. Collective."""
        starts = self.placed.table.starts
        count = len(starts) - 1
        if self.placed.owner is not None:
            return list(zip(self.rows.own.tolist(), self.rows.parts(self.weights), strict=True))
        owner = contiguous_owner(count, comm.size)
        own = np.flatnonzero(owner == comm.rank).tolist()
        if self.placed.bounds is None:
            return [(block, self.weights[starts[block] : starts[block + 1]]) for block in own]
        first = np.searchsorted(owner, np.arange(comm.size + 1))  # blocks of a rank are neighbours
        cuts = starts[first].tolist()
        parts = [self.weights[cuts[rank] : cuts[rank + 1]].reshape(-1) for rank in range(comm.size)]
        height = cuts[comm.rank + 1] - cuts[comm.rank]
        widths = [self.placed.width(rank) for rank in range(comm.size)]
        came = all_to_all(comm, parts, [height * width for width in widths])
        whole = np.concatenate(
            [part.reshape(height, width) for part, width in zip(came, widths, strict=True)], axis=1
        )
        base = cuts[comm.rank]
        return [(block, whole[starts[block] - base : starts[block + 1] - base]) for block in own]

    def whole(self, comm) -> np.ndarray | None:
        """The table, float32 (rows, columns), on rank 0; None on other ranks. Collective."""
        table = self.placed.table
        blocks = self.by_blocks(comm)
        own = [array.reshape(-1) for _, array in blocks]
        flat = np.concatenate(own) if own else np.empty(0, np.float32)
        came = comm.gather([block for block, _ in blocks])
        sizes = None
        if came is not None:
            heights = np.diff(table.starts)
            sizes = [int(heights[numbers].sum()) * table.columns for numbers in came]
        parts = [flat if rank == 0 else flat[:0] for rank in range(comm.size)]
        received = all_to_all(comm, parts, sizes if sizes is not None else [0] * comm.size)
        if came is None:
            return None
        out = np.empty((table.rows, table.columns), np.float32)
        for numbers, part in zip(came, received, strict=True):
            at = 0
            for block in numbers:
                start, stop = table.starts[block], table.starts[block + 1]
                size = int(stop - start) * table.columns
                out[start:stop] = part[at : at + size].reshape(-1, table.columns)
                at += size
        return out

    def take(self, whole: np.ndarray) -> None:
        """Set the weights to this rank's rows and columns of a whole table, float32 (rows, columns)."""
        if self.weights.size:
            self.weights[...] = whole[self.rows.global_rows(), self.columns]

    def _local(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.rows.m == self.rows.n else self.rows.local_of(rows)
