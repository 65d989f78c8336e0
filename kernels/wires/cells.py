"""Cells: the pieces of a vector that are encoded independently.

A cell carries the values that its codec derives from its elements (a scale, a table, means), so ranks need not agree on
anything before they encode. The encoding of an element does not depend on the cut of the vector among ranks or buckets,
if cuts are at ends of cells. (Quantisation in buckets: Alistarh et al. 2017, QSGD.)
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

    `starts` int64 (c + 1,), from 0. `plain` bool (c,): whether the cell travels as float32 with any codec.
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
        """Cells [first, last) as the cells of a separate vector; raises ValueError for wrong bounds."""
        if not 0 <= first <= last <= len(self):
            raise ValueError(f"cells {first} to {last} of {len(self)}")
        return _cells(self.starts[first : last + 1] - self.starts[first], self.plain[first:last])


def cells_of(n: int, tensors: Sequence[tuple[int, ...]] | None = None, whole: bool = False) -> Cells:
    """The cells of a vector of n float32 elements that contains tensors of these shapes one after another.

    Each tensor is cut into cells of CELL elements and one cell of the rest; if `whole`, it is one cell. Tensors with
    one dimension or none, and those with fewer than SMALL elements, are plain: biases and the like are few and
    sensitive (Markov et al. 2022, CGX). Without `tensors` the vector is one piece, and not plain. Raises ValueError for
    shapes that do not add up to n.
    """
    if n < 0:
        raise ValueError(f"a vector of {n} elements")
    sizes = [n] if tensors is None else [prod(shape) for shape in tensors]
    if sum(sizes) != n or min(sizes, default=0) < 0:
        raise ValueError(
            f"tensors of {sum(sizes)} elements in a vector of {n}: give the shapes of all, in order"
        )
    plain = [tensors is not None and (len(tensors[i]) < 2 or size < SMALL) for i, size in enumerate(sizes)]
    ends = np.cumsum([0, *sizes])
    starts = [
        np.arange(end - size, end, max(size, 1) if whole else CELL)
        for size, end in zip(sizes, ends[1:], strict=True)
    ]
    return _cells(
        np.concatenate([*starts, ends[-1:]]).astype(np.int64),
        np.repeat(np.array(plain, bool), [len(part) for part in starts]),
    )


def _cells(starts: np.ndarray, plain: np.ndarray) -> Cells:
    cells = Cells(np.ascontiguousarray(starts), np.ascontiguousarray(plain))
    cells.starts.flags.writeable = cells.plain.flags.writeable = False
    return cells
