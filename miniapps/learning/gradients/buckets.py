"""The gradient in buckets: contiguous groups of tensors, last layers first, each with its own all-reduce."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from kernels.allreduce.coding import coding
from kernels.wires import PLAIN

ITEM = 4  # bytes of a float32
# The errors that feedback keeps, float32: {tensor: (of this rank's contributions (k, *shape), of the total (*shape))}
Lost = dict[int, tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Bucket:
    """A bucket, sent over `wire`: tensor `tensors[i]`, of shape `shapes[i]`, has the elements from `bounds[i]` up to
    `bounds[i + 1]`."""

    tensors: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    bounds: tuple[int, ...]
    wire: str = PLAIN

    @property
    def size(self) -> int:
        """Elements."""
        return self.bounds[-1]

    @property
    def feedback(self) -> bool:
        """Whether the encoding errors of the wire are kept."""
        used = coding(self.wire)
        return used is not None and used.feedback

    def over(self) -> dict[str, Any]:
        """The arguments of a reduction that state its wire: a lossy wire encodes tensor by tensor."""
        plain = coding(self.wire) is None
        return {"wire": self.wire} if plain else {"wire": self.wire, "tensors": self.shapes}

    def split(self, vectors: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yields (tensor, view of its part in its shape) of `vectors` (..., size)."""
        for tensor, shape, (a, b) in zip(self.tensors, self.shapes, pairwise(self.bounds), strict=True):
            yield tensor, vectors[..., a:b].reshape(*vectors.shape[:-1], *shape)


def cut(shapes: Sequence[tuple[int, ...]], limit: int, wires: Sequence[str] | None = None) -> list[Bucket]:
    """Cuts tensors of `shapes` into buckets of up to `limit` bytes, from the last to the first, in the order in which
    their gradients are computed. A larger tensor has its own bucket, and all tensors of a bucket share a wire. Depends
    only on the model, `limit` and `wires`."""
    used = [PLAIN] * len(shapes) if wires is None else wires
    groups: list[list[int]] = []
    room = 0
    for tensor in reversed(range(len(shapes))):
        nbytes = ITEM * prod(shapes[tensor])
        if not groups or nbytes > room or used[tensor] != used[groups[-1][-1]]:
            groups.append([])
            room = limit
        groups[-1].append(tensor)
        room -= nbytes
    return [bucket_of(group, shapes, used[group[0]]) for group in groups]


def bucket_of(tensors: Sequence[int], shapes: Sequence[tuple[int, ...]], wire: str) -> Bucket:
    """The bucket of `tensors`, in this order; `shapes`: of all tensors."""
    own = tuple(shapes[tensor] for tensor in tensors)
    bounds = np.cumsum([0, *(prod(shape) for shape in own)]).tolist()
    return Bucket(tuple(tensors), own, tuple(bounds), wire)


def carried(wire: str, x: np.ndarray) -> np.ndarray:
    """A tensor, float32, after encoding and decoding on a wire, without feedback."""
    if (used := coding(wire)) is None:
        return x
    return used.codec.over(x.reshape(-1), used.codec.cells(x.size, (x.shape,))).reshape(x.shape)


def encoded_bytes(wire: str, shape: tuple[int, ...]) -> int:
    """The bytes of a float32 tensor on a wire."""
    used = coding(wire)
    n = prod(shape)
    return ITEM * n if used is None else used.codec.nbytes(used.codec.cells(n, (shape,)))


class Exchange:
    """The contributions of this rank's `rows` micro-batches to all buckets, and their all-reduces.

    `reducers`: one per bucket. `put` takes gradients tensor by tensor. With `overlap` the all-reduce of a bucket starts
    as soon as the last row fills it, in the order of the buckets, which is the same on all ranks. Contributions are
    `factor` times the gradients.
    """

    def __init__(self, buckets: list[Bucket], reducers: list, rows: int, overlap: bool, factor: float = 1.0):
        self.buckets, self._reducers, self._rows, self._overlap = buckets, reducers, rows, overlap
        self._factor = np.float32(factor)
        self._parts = [np.empty((rows, bucket.size), np.float32) for bucket in buckets]
        self._bucket = {tensor: k for k, bucket in enumerate(buckets) for tensor in bucket.tensors}
        self._views: list[dict[int, np.ndarray]] = [{} for _ in range(rows)]
        for bucket, parts in zip(buckets, self._parts, strict=True):
            for tensor, of_tensor in bucket.split(parts):
                for row, views in enumerate(self._views):
                    views[tensor] = of_tensor[row]
        self._empty = [0] * len(buckets)  # tensors that the last row still lacks
        self.reset()

    def reset(self) -> None:
        """Prepare for the gradients of a step."""
        self._empty = [len(bucket.tensors) for bucket in self.buckets]
        self._begun = 0  # number of started buckets

    def part(self, row: int, tensor: int) -> np.ndarray:
        """The memory for the gradient of a tensor in a micro-batch, float32 in the tensor's shape."""
        return self._views[row][tensor]

    def put(self, row: int, tensor: int, gradient: np.ndarray) -> None:
        """Add the gradient of a tensor, which may lie in its `part`; call it in ascending order of rows, once per
        tensor and row."""
        part = self._views[row][tensor]
        if gradient is not part or self._factor != 1.0:
            np.multiply(gradient, self._factor, out=part)
        if not self._overlap or row < self._rows - 1:
            return
        for k in range(self._begun):
            self._reducers[k].progress()
        self._empty[self._bucket[tensor]] -= 1
        while self._begun < len(self.buckets) and not self._empty[self._begun]:
            self._reducers[self._begun].start(self._parts[self._begun])
            self._begun += 1

    def finish(self) -> list[np.ndarray]:
        """Returns the total gradient of every tensor, in its shape, valid until the next call. Collective."""
        totals: list = [None] * len(self._bucket)
        for k, (bucket, reducer, parts) in enumerate(
            zip(self.buckets, self._reducers, self._parts, strict=True)
        ):
            total = reducer.finish() if k < self._begun else reducer(parts)
            for tensor, of_tensor in bucket.split(total):
                totals[tensor] = of_tensor
        self.reset()
        return totals

    def lost(self) -> Lost:
        """The errors that feedback keeps on this rank. Collective."""
        kept: Lost = {}
        for bucket, reducer in zip(self.buckets, self._reducers, strict=True):
            if bucket.feedback:
                rows, total = map(bucket.split, reducer.lost())
                kept |= {tensor: (own, whole) for (tensor, own), (_, whole) in zip(rows, total, strict=True)}
        return kept

    def restore_lost(self, kept: Lost) -> None:
        """Restore the errors that `lost` returned; tensors missing in `kept` have errors 0."""
        for bucket, reducer in zip(self.buckets, self._reducers, strict=True):
            if bucket.feedback:
                rows, total = (np.zeros_like(array) for array in reducer.lost())
                for (tensor, own), (_, whole) in zip(bucket.split(rows), bucket.split(total), strict=True):
                    if tensor in kept:
                        own[...], whole[...] = kept[tensor]
                reducer.restore_lost(rows, total)
