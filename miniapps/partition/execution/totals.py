"""Adds partial sums of ranks to totals over all blocks, with one reducer per reduction of a plan.

| guarantee | contribution of a rank | addition |
|---|---|---|
| none | one array over its blocks | by the library, or an ordering that the run names |
| run | one array over its blocks | in a fixed order of ranks (`direct`, or another) |
| layout | sums over the largest subtrees of its blocks | `block-tree`: one tree over all blocks, for any owners |
| exact | the array of every block | exactly, rounded once |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import torch

from kernels.allreduce import Reduction, plan
from kernels.allreduce.schedules.block_tree import children
from kernels.wires import PLAIN
from miniapps.partition.execution.block_vector import BlockVector
from miniapps.partition.execution.orderings import FLOATS, is_exact, reduction
from miniapps.partition.execution.place import Rows
from miniapps.partition.execution.scatter_layout import ScatterLayout
from miniapps.partition.execution.switched import Switched
from miniapps.partition.execution.wires import wired


class Total:
    """The totals of one reduction: after the partials are packed, `total()` returns a tensor for each operand, valid
    until the next call.

    `shapes`: of the operands. Without `comm` this rank has all blocks. `make(comm, reduction, name, blocks, summed)`
    plans the reducer, which the caller then frees. With `scatter` each rank gets only its part. `blocks` travel over
    the lossy `wire`. `by`: as of `orderings.reduction`. Construction is collective.
    """

    def __init__(
        self,
        comm,
        level: str,
        rows: Rows,
        combine: str,
        dtype: str,
        shapes: Sequence[tuple[int, ...]],
        name: str,
        make: Callable | None = None,
        scatter: ScatterLayout | None = None,
        wire: str = PLAIN,
        blocks: BlockVector | None = None,
        by: str = "",
    ):
        self.level, self.rows, self.shapes, self.own = level, rows, list(shapes), make is None
        self.scatter, self.blocks = scatter, blocks
        self.ends = np.cumsum([prod(shape) for shape in shapes]).tolist()
        self.begins = [0, *self.ends[:-1]]
        n, bounds = (self.ends[-1], None) if scatter is None else (scatter.bounds[-1], scatter.bounds)
        if blocks is None:
            described = reduction(level, combine, dtype, n, bounds, by)
        else:
            n = blocks.count
            described = wired(level, n, wire)
        self.exact = is_exact(described, level)
        self.trees = described.ordering == "block-tree"
        self.reducer: Any = None
        if comm is None and (self.exact or blocks is not None):
            from mpi4py import MPI

            comm = MPI.COMM_SELF
        if comm is not None:
            numbers = rows.numbers if self.trees or self.exact else None

            def planned(described: Reduction, name: str) -> Any:
                if make is None:
                    return plan(comm, described, name=name, blocks=numbers, summed=self.trees)
                return make(comm, described, name, numbers, self.trees)

            def over(n: int, wire: str, tensors: list[tuple[int, ...]], label: str) -> Any:
                return planned(wired(level, n, wire, tensors), name + label)

            if blocks is None:
                self.reducer = planned(described, name)
            else:
                self.reducer = Switched(blocks.bounds, blocks.tensors, over, wire)
        if self.exact:
            count = len(rows.numbers)
        elif self.trees:
            count = len(rows.subtrees)
        else:
            count = 1
        self.count = count
        neutral = {"sum": 0, "max": -np.inf, "min": np.inf}[combine]
        self.buffer = np.full((count, n), neutral if dtype in FLOATS else 0, dtype)
        self.copied = False  # whether totals keep their numbers after the next call
        self.nbytes = 0 if comm is None or comm.size == 1 else self.buffer[0:1].nbytes

    def packers(self, operand: int) -> list[Callable]:
        """For each partial of an operand a function that packs its tensor."""
        if self.blocks is not None:
            return [self.blocks.packer(operand, row) for row in self.buffer]
        if self.scatter is not None:
            pack = self.scatter.pack
            return [lambda x, row=row: pack(operand, row, x.numpy()) for row in self.buffer]
        begin, end = self.begins[operand], self.ends[operand]
        return [torch.from_numpy(row[begin:end].reshape(self.shapes[operand])).copy_ for row in self.buffer]

    def total(self) -> list[torch.Tensor]:
        """Reduce the packed partials; returns tensors that view the totals."""
        assert self.reducer is not None
        return self._split(self.reducer(self.buffer))

    def start(self) -> None:
        """Begin to reduce the packed partials, which stay as they are until `finish`."""
        assert self.reducer is not None
        self.reducer.start(self.buffer)

    def progress(self) -> None:
        """Advance the reduction that `start` began, without waiting."""
        assert self.reducer is not None
        self.reducer.progress()

    def finish(self) -> list[torch.Tensor]:
        """What `total` returns, of the reduction that `start` began."""
        assert self.reducer is not None
        return self._split(self.reducer.finish())

    def _split(self, found: np.ndarray) -> list[torch.Tensor]:
        """The totals of the operands, in the vector of all."""
        if self.blocks is not None:
            parts = self.blocks.unpack(found)
        elif self.scatter is not None:
            parts = self.scatter.unpack(found)
        else:
            parts = [
                found[begin:end].reshape(shape)
                for begin, end, shape in zip(self.begins, self.ends, self.shapes, strict=True)
            ]
        tensors = [torch.from_numpy(part) for part in parts]
        return [x.clone() for x in tensors] if self.copied else tensors

    def free(self) -> None:
        """Free the reducer if this object planned it. Collective."""
        if self.reducer is not None and self.own:
            self.reducer.free()


def tree(numbers: Sequence[int], begin: int, end: int, add: Callable, leaf: Callable):
    """The sum over a subtree of the tree over blocks: `leaf(k)` for the positions begin ... end - 1 of `numbers`,
    joined by `add(left, right)`. Calls leaves from left to right, and adds as early as possible."""
    if end - begin == 1:
        return leaf(begin)
    first = numbers[begin]
    (_, middle), _ = children((first, first + end - begin))
    at = begin + middle - first
    left = tree(numbers, begin, at, add, leaf)
    return add(left, tree(numbers, at, end, add, leaf))
