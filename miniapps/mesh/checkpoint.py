"""Checkpoints of training over a mesh: whole tensors, from which any mesh can continue."""

from __future__ import annotations

from kernels.guarantees import ChoiceError
from miniapps.learning.course.checkpoint import Expected, Holding
from miniapps.learning.discovery import require_data
from miniapps.mesh.config import SAMPLES, MeshConfig
from miniapps.mesh.problem import deck
from miniapps.partition import models
from miniapps.partition.cuts.axes import AxisError


class Whole(Holding):
    """Parameters, and buffers such as the running means of a normalisation."""

    def require(self, config) -> None:
        super().require(config)
        require_data(config, {name: SAMPLES[model.LEARNS] for name, model in models.every().items()})
        try:
            models.model(config.model.name).axes(deck(config))
        except AxisError as error:
            raise ChoiceError(f"--blocks: {error}") from error

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
