"""Checkpoints of training over a mesh: whole tensors, from which any mesh can continue.

With feedback they hold the errors of wires, too: under `layout` those of blocks, from which any mesh can continue, and
otherwise those of ranks, from which only the same mesh can.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

import numpy as np

from kernels.guarantees import ChoiceError
from miniapps.learning.course.checkpoint import Arrays, Expected, Held, Holding
from miniapps.learning.discovery import require_data
from miniapps.mesh.config import SAMPLES, MeshConfig
from miniapps.mesh.problem import deck, mesh_of, planned
from miniapps.partition import models
from miniapps.partition.cuts.axes import AxisError
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import Plan
from miniapps.partition.execution.wires import bound_to, contributed, feeds_back
from miniapps.untrusted.regular import Refused

WIRE, PLAN, MESH = "feedback.wire", "feedback.plan", "feedback.mesh"
OF = {
    "lost": "feedback.contributions",
    "lost of totals": "feedback.totals",
}  # arrays, and their numbers of elements
MOST = 2**40  # elements of an array


class Whole(Holding):
    """Parameters, and buffers such as the running means of a normalisation."""

    REMEDIES: ClassVar = {
        MESH: "without --guarantee layout the errors that a wire keeps belong to ranks, and no other mesh has these "
        "ranks; start on the same mesh, or write and continue checkpoints under --guarantee layout",
    }

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

    def described(self, config, options, size: int) -> dict[str, Any]:
        if not feeds_back(config.training.wire):
            return {}
        return _described(config, options, planned(config)[0], mesh_of(config, options, size))

    def stated(self, trainer) -> dict[str, Any]:
        if not feeds_back(trainer.config.training.wire):
            return {}
        return _described(trainer.config, trainer.ctx.options, trainer.plan, trainer.mesh)

    def kept(self, held: Held) -> Expected:
        if not held.more:
            return {}
        found: Expected = {}
        for name, key in OF.items():
            n = held.more.get(key)
            if not isinstance(n, int) or not 0 <= n <= MOST:
                raise Refused(
                    f"{key} is from 0 to {MOST}; this program did not write the checkpoint: leave it out"
                )
            found[name] = "float32", (n,)
        return found

    def gathered(self, trainer, held: Held) -> Arrays:
        if not held.more:
            return {}
        found = trainer.kept_errors().values()
        none = np.zeros(0, np.float32)
        return {
            name: np.concatenate([none, *(each[k].ravel() for each in found)]) for k, name in enumerate(OF)
        }

    def restored(self, trainer, held: Held, arrays: Arrays | None) -> None:
        if held.more:
            trainer.restore_kept_errors(None if arrays is None else [arrays[name] for name in OF])


def _described(config, options, plan: Plan, mesh: Mesh) -> dict[str, Any]:
    """The wire, and the plan and the mesh that decide what an element of its errors belongs to."""
    level = options.policy.level
    shapes = contributed(plan, mesh, level).values()
    counts = sum(map(prod, shapes)), sum(prod(shape[1:]) for shape in shapes)
    bound = {WIRE: config.training.wire, PLAN: plan.hash, MESH: bound_to(mesh, level)}
    return bound | dict(zip(OF.values(), counts, strict=True))


def _of_module(config, kind: str) -> Expected:
    import torch

    with torch.device("meta"):
        module = models.model(config.model.name).module(deck(config))
    return {key: (str(x.dtype).removeprefix("torch."), tuple(x.shape)) for key, x in getattr(module, kind)()}


HOLDING = Whole("mesh", MeshConfig)
