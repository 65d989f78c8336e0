"""A rank's parts of whole tensors: parameters, buffers, inputs and constants that a program is given."""

from __future__ import annotations

import numpy as np
import torch

from miniapps.partition.cuts.steps import Value
from miniapps.partition.execution.place import Place
from miniapps.partition.graphs.graph import Source


def part_of(place: Place, value: Value, tensor: torch.Tensor) -> torch.Tensor:
    """The part that the rank of `place` holds of a whole source."""
    for d, (dim, n) in enumerate(zip(value.cut, value.shape, strict=True)):
        index = place.indices(dim, n)
        if len(index) != n or not np.array_equal(index, np.arange(n)):
            tensor = tensor.index_select(d, torch.from_numpy(np.maximum(index, 0)))
            tensor.index_fill_(d, torch.from_numpy(np.flatnonzero(index < 0)), 0)
    return tensor.contiguous()


def put_part(place: Place, value: Value, part: np.ndarray, whole: np.ndarray) -> None:
    """Write the part that the rank of `place` holds to its places in the whole array, without padding."""
    found = [place.indices(dim, n) for dim, n in zip(value.cut, value.shape, strict=True)]
    held = [np.flatnonzero(index >= 0) for index in found]
    whole[np.ix_(*(index[at] for index, at in zip(found, held, strict=True)))] = part[np.ix_(*held)]


def constant_of(source: Source) -> torch.Tensor:
    """The whole tensor of a constant of the plan."""
    return torch.from_numpy(
        np.frombuffer(bytearray(source.data), source.tensor.dtype).reshape(source.tensor.shape)
    )
