"""Contributions of a rank's blocks, handed over one by one in any order, and the sums kept of them meanwhile.

| class | keeps | for |
|---|---|---|
| `Stored` | all contributions | `library`; `allgather` |
| `Merged` | sums of complete subtrees: the children of a node are added once both have come | every fixed order |
| `Expanded` | few float64 per element with the same exact sum, mostly one or two | `exact` |
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kernels.allreduce.accumulate import Accumulation
from kernels.allreduce.execution.expansion import PARTS, Expansion
from kernels.allreduce.local import parents
from kernels.tree import Tree

LISTED = 8  # blocks in messages


class Handover:
    """Records which of the ascending `blocks` have contributed; `owner` names the reducer in messages.

    A subclass implements `_take(index, x)`: x (*shape) is the contribution of `blocks[index]`. It must not change x or
    keep a reference to it.
    """

    def __init__(self, owner: str, blocks: Sequence[int], shape: tuple[int, ...], dtype: np.dtype):
        self._owner, self._shape, self._dtype = owner, shape, dtype
        self._index = {block: i for i, block in enumerate(blocks)}
        self._missing = set(blocks)

    def add(self, block: int, contribution: np.ndarray) -> None:
        """Takes the contribution (*shape) of a block. Raises ValueError for another rank's block, for one already added
        and for another shape, TypeError for another type."""
        if block not in self._missing:
            was = "was added before: finish() this reduction before the next" if block in self._index else (
                f"is not of this rank, which was planned with {_listed(self._index)}"
            )  # fmt: skip
            raise ValueError(f"{self._owner}: block {block} {was}")
        x = np.asarray(contribution)
        if x.dtype != self._dtype:
            raise TypeError(f"{self._owner} expects contributions of type {self._dtype}, got {x.dtype}")
        if x.shape != self._shape:
            raise ValueError(
                f"{self._owner} expects one contribution of shape {self._shape} for block {block}, got {x.shape}"
            )
        self._take(self._index[block], np.ascontiguousarray(x).reshape(x.shape))
        self._missing.discard(block)

    def require_all(self) -> None:
        """Raises ValueError unless the contributions of all blocks have come."""
        if self._missing:
            raise ValueError(
                f"{self._owner}: finish() before the contributions of {_listed(sorted(self._missing))} were added"
            )

    def reset(self) -> None:
        """Forgets all contributions."""
        self._missing = set(self._index)

    def _take(self, index: int, x: np.ndarray) -> None:
        raise NotImplementedError


class Stored(Handover):
    """`contributions` (k, *shape), in ascending order of blocks."""

    def __init__(self, owner, blocks, shape, dtype):
        super().__init__(owner, blocks, shape, dtype)
        self.contributions = np.empty((len(blocks), *shape), dtype)

    def _take(self, index, x):
        self.contributions[index] = x


class Merged(Handover):
    """`sums`: the words of the sum of each of the `trees` over contributions, in the accumulation `held`."""

    def __init__(self, owner, blocks, shape, held: Accumulation, trees: Sequence[Tree]):
        super().__init__(owner, blocks, shape, held.dtype)
        self._held = held
        self._roots, self._above = parents(trees, len(blocks))
        self._waiting: dict[int, np.ndarray] = {}  # by parent: the words of the child that came first
        self._sums: dict[int, np.ndarray] = {}
        self._spare: list[np.ndarray] = []

    @property
    def sums(self) -> list[np.ndarray]:
        return [self._sums[root] for root in self._roots]

    def _take(self, index, x):
        node, words, own = index, x.reshape(-1), False  # own: in memory of this object
        if self._held.name != "working":
            words, own = self._room(), True
            self._held.load(x[np.newaxis], words)
        while node in self._above:
            node, side = self._above[node]
            other = self._waiting.pop(node, None)
            if other is None:
                self._waiting[node] = words if own else self._copied(words)
                return
            self._held.operation.into([other, words] if side else [words, other], other)
            if own:
                self._spare.append(words)
            words, own = other, True
        self._sums[node] = words if own else self._copied(words)

    def _room(self) -> np.ndarray:
        size = math.prod(self._shape) * self._held.width
        return self._spare.pop() if self._spare else np.empty(size, self._held.travels)

    def _copied(self, words: np.ndarray) -> np.ndarray:
        room = self._room()
        np.copyto(room, words)
        return room

    def reset(self):
        super().reset()
        self._spare += [*self._waiting.values(), *self._sums.values()]
        self._waiting.clear()
        self._sums.clear()


class Expanded(Handover):
    """`sum`: the exact sum of the contributions."""

    def __init__(self, owner, blocks, shape, dtype):
        super().__init__(owner, blocks, shape, dtype)
        self.sum = Expansion(np.empty((PARTS, math.prod(shape))))

    def _take(self, index, x):
        self.sum.add(x.reshape(1, -1))

    def reset(self):
        super().reset()
        self.sum.clear()


def _listed(blocks) -> str:
    """'block 3', 'blocks 3, 5', and with many 'blocks 0, 1, ... (64 blocks)'."""
    blocks = list(blocks)
    text = ", ".join(map(str, blocks[:LISTED])) + (
        f", ... ({len(blocks)} blocks)" if len(blocks) > LISTED else ""
    )
    return f"block {text}" if len(blocks) == 1 else f"blocks {text}" if blocks else "no blocks"
