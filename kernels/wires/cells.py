"""Cells: the pieces of a vector that are encoded each by itself.

A cell carries what its codec derives from its elements (a scale, a table, means), so that ranks need not agree on
anything before they encode, and what an element becomes does not depend on how the vector is cut among ranks or
buckets, as long as it is cut where cells end. (Quantisation in buckets: Alistarh et al. 2017, QSGD.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

CELL = 4096  # elements of a cell, at most
SMALL = 1024  # tensors of fewer elements travel as float32


@dataclass(frozen=True, eq=False)
class Cells:
    """Consecutive cells of a vector: cell i has the elements [starts[i], starts[i + 1]).

    `starts` int64 (c + 1,), from 0. `plain` bool (c,): whether the cell travels as float32, whatever the codec.
    """

    starts: np.ndarray
    plain: np.ndarray

    def __len__(self) -> int:
        return len(self.plain)

    @property
    def n(self) -> int:
        """Elements of all cells."""
        return int(self.starts[-1])

    def part(self, first: int, last: int) -> Cells:
        """Cells [first, last) as those of a vector of their own; ValueError for bounds that are none."""
        if not 0 <= first <= last <= len(self):
            raise ValueError(f"cells {first} to {last} of {len(self)}")
        return _cells(self.starts[first : last + 1] - self.starts[first], self.plain[first:last])


def cells_of(n: int, tensors: Sequence[tuple[int, ...]] | None = None) -> Cells:
    """The cells of a vector of n float32 elements, in which tensors of these shapes follow each other.

    Each tensor is cut into cells of CELL elements and one of the rest. Those of one dimension (or none) and those of
    fewer than SMALL elements are plain: biases and the like are few and sensitive (Markov et al. 2022, CGX). Without
    `tensors` the vector is one piece, and never plain. Raises ValueError for shapes that do not add up to n.
    """
    if n < 0:
        raise ValueError(f"a vector of {n} elements")
    sizes = [n] if tensors is None else [prod(shape) for shape in tensors]
    if sum(sizes) != n or min(sizes, default=0) < 0:
        raise ValueError(
            f"tensors of {sum(sizes)} elements in a vector of {n}: give the shape of each, in order"
        )
    plain = [tensors is not None and (len(tensors[i]) < 2 or size < SMALL) for i, size in enumerate(sizes)]
    ends = np.cumsum([0, *sizes])
    starts = [np.arange(end - size, end, CELL) for size, end in zip(sizes, ends[1:], strict=True)]
    return _cells(
        np.concatenate([*starts, ends[-1:]]).astype(np.int64),
        np.repeat(np.array(plain, bool), [len(part) for part in starts]),
    )


def _cells(starts: np.ndarray, plain: np.ndarray) -> Cells:
    cells = Cells(np.ascontiguousarray(starts), np.ascontiguousarray(plain))
    cells.starts.flags.writeable = cells.plain.flags.writeable = False
    return cells
