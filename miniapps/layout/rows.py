"""Rows of a matrix in logical blocks: contiguous ranges that depend only on the problem, and their owners."""

import itertools
from dataclasses import dataclass, field

import numpy as np

from miniapps.layout.blocks import BlocksError
from miniapps.layout.owners import contiguous_owner, shuffled


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows `starts[0] = 0 ... starts[-1]` in blocks `starts[b] ... starts[b + 1]`, assigned to `size` ranks.

    Rank `rank` owns the blocks `own`, in ascending order, and holds their rows one after another: the rows of block
    `own[i]` lie at `local_starts[i] ... local_starts[i + 1]` of its vectors. `owner` (count,) holds the owner of each
    block; a rank may then own none. Without it, every rank owns a contiguous run of nearly equal length; `shuffle`
    other than 0 permutes that assignment (for tests: no result may depend on it).

    Raises BlocksError if a block is empty, if `owner` is invalid, or if there are more ranks than blocks without
    `owner`.
    """

    starts: np.ndarray  # int64 (count + 1,)
    size: int = 1
    rank: int = 0
    shuffle: int = 0
    # int32 (count,): the rank of each block. None, only as an argument, means contiguous or shuffled owners.
    owner: np.ndarray = field(default=None, repr=False)  # type: ignore[arg-type]
    own: np.ndarray = field(init=False, repr=False)  # numbers of this rank's blocks
    local_starts: np.ndarray = field(init=False, repr=False)  # int64 (own + 1,)
    _position: np.ndarray = field(init=False, repr=False)  # (count,) index in `own`, -1 elsewhere

    def __post_init__(self):
        starts = np.ascontiguousarray(self.starts, np.int64)
        if starts.ndim != 1 or len(starts) < 2 or starts[0] != 0 or (np.diff(starts) < 1).any():
            raise BlocksError(
                f"rows cannot be cut at {np.array2string(starts, threshold=10)}: blocks begin at 0 and hold at "
                "least one row each; give ascending starts 0, ..., rows"
            )
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "owner", self._assigned() if self.owner is None else self._given())
        own = np.flatnonzero(self.owner == self.rank)
        position = np.full(self.count, -1)
        position[own] = np.arange(len(own))
        object.__setattr__(self, "own", own)
        object.__setattr__(self, "local_starts", np.concatenate([[0], np.cumsum(np.diff(starts)[own])]))
        object.__setattr__(self, "_position", position)

    @property
    def count(self) -> int:
        """Number of blocks of all ranks."""
        return len(self.starts) - 1

    @property
    def n(self) -> int:
        """Number of rows of all ranks."""
        return int(self.starts[-1])

    @property
    def m(self) -> int:
        """Number of rows of this rank."""
        return int(self.local_starts[-1])

    def ranges(self) -> np.ndarray:
        """int64 (own, 2): the first global row of each own block, and the row after its last."""
        return np.stack([self.starts[self.own], self.starts[self.own + 1]], axis=1)

    def parts(self, vector) -> list:
        """The part of this rank's `vector` that belongs to each own block, as views."""
        starts = self.local_starts.tolist()
        return [vector[start:stop] for start, stop in itertools.pairwise(starts)]

    def owner_of(self, rows) -> np.ndarray:
        """The ranks that own global `rows`."""
        return self.owner[self._block_of(rows)]

    def local_of(self, rows) -> np.ndarray:
        """int64: the places of global `rows` in this rank's vectors; -1 for rows of other ranks."""
        block = self._block_of(rows)
        position = self._position[block]
        return np.where(position < 0, -1, self.local_starts[position] + rows - self.starts[block])

    def global_rows(self) -> np.ndarray:
        """int64 (m,): the global numbers of this rank's rows, ascending."""
        offset = self.starts[self.own] - self.local_starts[:-1]
        return np.arange(self.m) + np.repeat(offset, np.diff(self.local_starts))

    def _block_of(self, rows) -> np.ndarray:
        return np.searchsorted(self.starts, rows, side="right") - 1

    def _assigned(self) -> np.ndarray:
        if self.size > self.count:
            raise BlocksError(
                f"{self.size} ranks for {self.count} blocks of rows: every rank needs at least one block; start at "
                f"most {self.count} ranks, or choose smaller blocks or a larger problem"
            )
        return shuffled(contiguous_owner(self.count, self.size), self.shuffle)

    def _given(self) -> np.ndarray:
        owner = np.ascontiguousarray(self.owner, np.int32)
        if owner.shape != (self.count,) or owner.min() < 0 or owner.max() >= self.size:
            raise BlocksError(
                f"owner {np.array2string(owner, threshold=10)} of {self.count} blocks of rows: give one rank of "
                f"0 ... {self.size - 1} for each"
            )
        return owner
