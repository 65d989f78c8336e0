"""Logical blocks of an array, whose length depends only on the problem, and their assignment to ranks."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from miniapps.layout.owners import contiguous_owner, shuffled


@dataclass(frozen=True)
class Parts:
    """`n` elements in logical blocks of `block` (the last may be shorter), assigned to `size` ranks.

    Rank `rank` owns the blocks `own`, in ascending order; with more ranks than blocks, some own none. With `shuffle`
    = 0 each rank owns a contiguous run, of nearly equal length; any other value permutes that assignment.
    """

    n: int
    block: int
    size: int = 1
    rank: int = 0
    shuffle: int = 0
    own: np.ndarray = field(init=False, repr=False, compare=False)  # global indices of this rank's blocks
    cuts: list[tuple[int, int]] = field(
        init=False, repr=False, compare=False
    )  # (start, stop) in this rank's array

    def __post_init__(self):
        owner = shuffled(contiguous_owner(self.count, self.size), self.shuffle)
        own = np.flatnonzero(owner == self.rank)
        ends = np.cumsum([0, *(self.length(int(block)) for block in own)]).tolist()
        object.__setattr__(self, "own", own)
        object.__setattr__(self, "cuts", list(pairwise(ends)))

    @property
    def count(self) -> int:
        """Number of blocks in the whole array."""
        return -(-self.n // self.block)

    @property
    def elements(self) -> int:
        """Number of elements that this rank owns."""
        return self.cuts[-1][1] if self.cuts else 0

    def length(self, block: int) -> int:
        """Number of elements of a block."""
        return min(self.block, self.n - int(block) * self.block)
