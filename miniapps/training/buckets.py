"""The gradient in buckets: contiguous groups of tensors, last layers first, each with an all-reduce of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from kernels.allreduce.coding import coding

ITEM = 4  # bytes of a float32


@dataclass(frozen=True)
class Bucket:
    """Tensor `tensors[i]`, of shape `shapes[i]`, is elements `bounds[i]` to `bounds[i + 1]` of the bucket."""

    tensors: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    bounds: tuple[int, ...]

    @property
    def size(self) -> int:
        """Elements."""
        return self.bounds[-1]


def over(wire: str, bucket: Bucket) -> dict[str, Any]:
    """What a reduction of the bucket is told of its wire: one that loses something encodes tensor by tensor."""
    return {"wire": wire} if coding(wire) is None else {"wire": wire, "tensors": bucket.shapes}


def cut(shapes: Sequence[tuple[int, ...]], limit: int) -> list[Bucket]:
    """Buckets of up to `limit` bytes of the tensors of `shapes`, from the last to the first, which is the order in
    which their gradients come; a larger tensor is a bucket alone. Depends on the model and `limit` alone."""
    groups: list[list[int]] = []
    room = 0
    for tensor in reversed(range(len(shapes))):
        nbytes = ITEM * prod(shapes[tensor])
        if not groups or nbytes > room:
            groups.append([])
            room = limit
        groups[-1].append(tensor)
        room -= nbytes
    return [_bucket(group, shapes) for group in groups]


def _bucket(group: list[int], shapes: Sequence[tuple[int, ...]]) -> Bucket:
    own = tuple(shapes[tensor] for tensor in group)
    bounds = np.cumsum([0, *(prod(shape) for shape in own)]).tolist()
    return Bucket(tuple(group), own, tuple(bounds))


class Exchange:
    """The contributions of this rank's `rows` micro-batches to all buckets, and their all-reduces.

    `reducers`: one per bucket. `put` takes gradients tensor by tensor; with `overlap` a bucket of the last row travels
    as soon as it is full, in the order of the buckets, which is the same on all ranks.
    """

    def __init__(self, buckets: list[Bucket], reducers: list, rows: int, overlap: bool):
        self.buckets, self._reducers, self._rows, self._overlap = buckets, reducers, rows, overlap
        self._parts = [np.empty((rows, bucket.size), np.float32) for bucket in buckets]
        self._place = {t: (k, i) for k, bucket in enumerate(buckets) for i, t in enumerate(bucket.tensors)}
        self._empty = [0] * len(buckets)  # tensors that the last row still lacks
        self.reset()

    def reset(self) -> None:
        """Make ready for the gradients of a step."""
        self._empty = [len(bucket.tensors) for bucket in self.buckets]
        self._begun = 0  # buckets that travel: the first so many

    def part(self, row: int, tensor: int) -> np.ndarray:
        """Where the gradient of a tensor in a micro-batch lies, float32 of the tensor's shape."""
        k, i = self._place[tensor]
        bucket = self.buckets[k]
        return self._parts[k][row, bucket.bounds[i] : bucket.bounds[i + 1]].reshape(bucket.shapes[i])

    def put(self, row: int, tensor: int, gradient: np.ndarray) -> None:
        """Take the gradient of a tensor; rows ascend, and each tensor comes once in each."""
        np.copyto(self.part(row, tensor), gradient)
        if not self._overlap or row < self._rows - 1:
            return
        for k in range(self._begun):
            self._reducers[k].progress()
        self._empty[self._place[tensor][0]] -= 1
        while self._begun < len(self.buckets) and not self._empty[self._begun]:
            self._reducers[self._begun].start(self._parts[self._begun])
            self._begun += 1

    def finish(self) -> list[np.ndarray]:
        """The total gradient of every tensor, of its shape, valid until the next call. Collective."""
        totals: list = [None] * len(self._place)
        for k, (bucket, reducer, parts) in enumerate(
            zip(self.buckets, self._reducers, self._parts, strict=True)
        ):
            total = reducer.finish() if k < self._begun else reducer(parts)
            for tensor, shape, a, b in zip(
                bucket.tensors, bucket.shapes, bucket.bounds, bucket.bounds[1:], strict=False
            ):
                totals[tensor] = total[a:b].reshape(shape)
        self.reset()
        return totals
