"""The vector in which the blocks of gradients travel over a lossy wire.

A wire encodes a vector in cells, each by its own elements. So that bits do not follow the mesh, every block of a
gradient is a tensor of its own, wherever it is held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import numpy as np
import torch

from miniapps.partition.cuts.axes import Cut, axes_of
from miniapps.partition.execution.place import Part, Place


class BlockVector:
    """A vector with all values of a reduction, block after block. `tensors[k]`: the shapes of the blocks of value k,
    which has the elements [bounds[k], bounds[k + 1])."""

    def __init__(self, place: Place, cuts: Sequence[Cut]):
        self.shapes = [place.shape(cut) for cut in cuts]
        self.padded = place.padded
        self.pieces: list[list[tuple[int, int, Part | None]]] = []
        self.tensors: list[list[tuple[int, ...]]] = []
        self.bounds = [0]
        end = 0
        for cut, shape in zip(cuts, self.shapes, strict=True):
            parts = blocks_of(place, cut)
            self.tensors.append([shape if part is None else part.shape for part in parts])
            pieces = []
            for part, of_block in zip(parts, self.tensors[-1], strict=True):
                begin, end = end, end + prod(of_block)
                pieces.append((begin, end, part))
            self.pieces.append(pieces)
            self.bounds.append(end)
        self.count = end

    def packer(self, k: int, row: np.ndarray) -> Callable:
        """A function that packs value k into a vector."""
        targets = [(torch.from_numpy(row[begin:end]), part) for begin, end, part in self.pieces[k]]

        def pack(x: torch.Tensor) -> None:
            for target, part in targets:
                target.copy_((x if part is None else chosen(x, part)).reshape(-1))

        return pack

    def views(self, k: int, vector: np.ndarray) -> list[np.ndarray]:
        """Views of the blocks of value k in a vector, in their shapes."""
        pieces = zip(self.pieces[k], self.tensors[k], strict=True)
        return [vector[begin:end].reshape(shape) for (begin, end, _), shape in pieces]

    def unpack(self, vector: np.ndarray) -> list[np.ndarray]:
        """The values in a vector."""
        found = []
        for pieces, shape in zip(self.pieces, self.shapes, strict=True):
            if len(pieces) == 1 and pieces[0][2] is None:
                begin, end, _ = pieces[0]
                found.append(vector[begin:end].reshape(shape))
                continue
            value = (torch.zeros if self.padded else torch.empty)(shape, dtype=torch.float32)
            for begin, end, part in pieces:
                assert part is not None
                view = chosen(value, part)
                view.copy_(torch.from_numpy(vector[begin:end]).reshape(view.shape))
            found.append(value.numpy())
        return found


def blocks_of(place: Place, cut: Cut) -> list[Part | None]:
    """The parts of a local array, one for each combination of own blocks, ascending; None for a whole array."""
    axes = axes_of(cut)
    several = product(*(range(len(place.own[axis])) for axis in axes))
    return [
        place.part(cut, {axis: (at, at + 1) for axis, at in zip(axes, each, strict=True)}) for each in several
    ]


def chosen(x: torch.Tensor, part: Part) -> torch.Tensor:
    """A part of an array, in its factors; a view if the array is contiguous."""
    view = x if part.factors is None else x.reshape(part.factors)
    for dim, begin, length in part.ranges:
        view = view.narrow(dim, begin, length)
    return view
