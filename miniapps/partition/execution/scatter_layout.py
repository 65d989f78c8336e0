"""The layout of a reduce-scatter, planned once: how to pack partial values by the rank that needs each total."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from miniapps.partition.execution.exchange import Packed, Recut, common, take
from miniapps.partition.execution.place import Place


class ScatterLayout:
    """A vector with the elements that each rank of `group` needs of all values, rank after rank, in parts with
    `bounds`. `values`: each is held as `cut`, and each rank needs only its part of `wanted`; no two ranks need the same
    element.

    The order of elements in the vector affects no bit, because each element is added separately.
    """

    def __init__(
        self, place_of: Callable[[int], Place], rank: int, group: Sequence[int], values: Sequence[Recut]
    ):
        self.packs: list[list[Packed]] = [[] for _ in values]
        # For each value the shape of this rank's part, and its place in the rank's part of the vector.
        self.parts: list[tuple[tuple[int, ...], Packed | None]] = []
        bounds = [0]
        for other in group:
            first = end = bounds[-1]
            for packs, value in zip(self.packs, values, strict=True):
                held = [place_of(rank).indices(dim, n) for dim, n in zip(value.cut, value.shape, strict=True)]
                wanted = [
                    place_of(other).indices(dim, n) for dim, n in zip(value.wanted, value.shape, strict=True)
                ]
                found, begin = common(held, wanted), end
                if found is not None:
                    end = take(packs, begin, found[0])
                if other == rank:
                    shape = tuple(map(len, wanted))
                    part = None if found is None else (begin - first, end - first, packs[-1][2], found[1])
                    self.parts.append((shape, part))
            bounds.append(end)
        self.bounds = tuple(bounds)

    def pack(self, k: int, vector: np.ndarray, array: np.ndarray) -> None:
        """Copy a partial of value k to its places in the vector."""
        for begin, end, shape, index in self.packs[k]:
            np.copyto(vector[begin:end].reshape(shape), array[index])

    def unpack(self, part: np.ndarray) -> list[np.ndarray]:
        """This rank's part of each value, from its part of the vector; views of it unless padded."""
        found = []
        for shape, packed in self.parts:
            if packed is None:
                found.append(np.zeros(shape, part.dtype))
                continue
            begin, end, inner, index = packed
            if end - begin == prod(shape):
                found.append(part[begin:end].reshape(shape))
                continue
            padded = np.zeros(shape, part.dtype)
            padded[index] = part[begin:end].reshape(inner)
            found.append(padded)
        return found
