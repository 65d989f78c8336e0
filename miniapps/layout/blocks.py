"""Logical blocks: pieces of a periodic grid, whose shape depends only on the problem, and their owners."""

from dataclasses import dataclass, field

import numpy as np

from miniapps.layout.owners import contiguous_owner, shuffled

MOST_BLOCKS = 2**24  # of a problem: every rank lists all blocks, 20 bytes each


class BlocksError(ValueError):
    """The grid cannot be cut as requested, or there are more ranks than blocks."""


def require_few(count: int, remedy: str) -> None:
    """Raise BlocksError, which ends with `remedy`, if there are more than MOST_BLOCKS blocks."""
    if count > MOST_BLOCKS:
        raise BlocksError(f"{count} blocks: every rank lists them all, at most {MOST_BLOCKS}; {remedy}")


@dataclass(frozen=True)
class Blocks:
    """A periodic grid of `ny x nx` points in blocks of `by x bx`, assigned to `size` ranks.

    Blocks are numbered row by row. Rank `rank` owns the blocks `own`, in ascending order; local index i of
    a field array is block `own[i]`. With `shuffle` = 0 each rank owns a contiguous run, of nearly equal length;
    any other value permutes that assignment (for tests: no result may depend on it). `owner` overrides both.

    Raises BlocksError if the grid is not divisible or `size` exceeds the number of blocks.
    """

    ny: int
    nx: int
    by: int
    bx: int
    size: int = 1
    rank: int = 0
    shuffle: int = 0
    # int32 (count,): the rank of each block. None, only as an argument, means contiguous or shuffled owners.
    owner: np.ndarray = field(default=None, repr=False, compare=False)  # type: ignore[arg-type]
    own: np.ndarray = field(init=False, repr=False, compare=False)  # global indices of this rank's blocks

    def __post_init__(self):
        for name, points, block in (("ny", self.ny, self.by), ("nx", self.nx, self.bx)):
            if block < 1 or points < 1 or points % block:
                divisors = ", ".join(str(d) for d in range(4, points + 1) if points % d == 0)
                raise BlocksError(
                    f"grid.{name} = {points} points cannot be cut into blocks of {block}; "
                    f"choose a block edge among {divisors}"
                )
        require_few(self.count, "choose larger blocks (grid.bx, grid.by) or a smaller grid")
        if self.size > self.count:
            raise BlocksError(
                f"{self.size} ranks for {self.count} blocks of {self.by} x {self.bx} points: every rank needs at "
                f"least one block; start at most {self.count} ranks, or choose smaller blocks or a larger grid"
            )
        if self.owner is None:
            owner = shuffled(contiguous_owner(self.count, self.size), self.shuffle)
            object.__setattr__(self, "owner", owner)
        object.__setattr__(self, "own", np.flatnonzero(self.owner == self.rank))

    @property
    def rows(self) -> int:
        """Number of rows of blocks."""
        return self.ny // self.by

    @property
    def columns(self) -> int:
        """Number of columns of blocks."""
        return self.nx // self.bx

    @property
    def count(self) -> int:
        """Number of blocks in the whole grid."""
        return self.rows * self.columns

    def neighbour(self, block: int, dj: int, di: int) -> int:
        """Global index of the block `dj` rows and `di` columns of blocks away, periodically."""
        j, i = divmod(block, self.columns)
        return (j + dj) % self.rows * self.columns + (i + di) % self.columns

    def origin(self, block: int) -> tuple[int, int]:
        """Global (row, column) of the block's first point."""
        j, i = divmod(block, self.columns)
        return j * self.by, i * self.bx

    def local(self, block: int) -> int | None:
        """Local index of a block, or None if another rank owns it."""
        where = np.searchsorted(self.own, block)
        return int(where) if where < len(self.own) and self.own[where] == block else None

    def index(self, block: int) -> int:
        """Local index of a block that this rank owns; raises BlocksError for others."""
        where = self.local(block)
        if where is None:
            raise BlocksError(f"block {block} is not on rank {self.rank}, which has {self.own.tolist()}")
        return where

    def zeros(self, pad: int = 0, dtype=np.float64, xp=np):
        """A field `(own blocks, by + 2 pad, bx + 2 pad)` of zeros."""
        return xp.zeros((len(self.own), self.by + 2 * pad, self.bx + 2 * pad), dtype)
