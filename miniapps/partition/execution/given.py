"""The tensors that a program is given: a rank's parts of parameters, buffers, inputs and constants."""

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


def constant_of(source: Source) -> torch.Tensor:
    """The whole tensor of a constant of the plan."""
    return torch.from_numpy(
        np.frombuffer(bytearray(source.data), source.tensor.dtype).reshape(source.tensor.shape)
    )
