"""What a checkpoint of a training over a mesh holds: whole tensors, which fit any mesh."""

from __future__ import annotations

from miniapps.learning.course.checkpoint import Expected, Holding
from miniapps.mesh.config import MeshConfig
from miniapps.mesh.problem import deck
from miniapps.partition import models


class Whole(Holding):
    """Parameters, and buffers such as running means of a normalisation."""

    def tensors(self, config) -> dict[str, tuple[int, ...]]:
        return {name: shape for name, (_, shape) in _of_module(config, "named_parameters").items()}

    def buffers(self, config) -> Expected:
        return _of_module(config, "named_buffers")


def _of_module(config, kind: str) -> Expected:
    import torch

    with torch.device("meta"):
        module = models.model(config.model.name).module(deck(config))
    return {key: (str(x.dtype).removeprefix("torch."), tuple(x.shape)) for key, x in getattr(module, kind)()}


HOLDING = Whole("mesh", MeshConfig)
