"""The plan of a run over a mesh as data (`miniapps.untrusted.program`)."""

from __future__ import annotations

from typing import Any

from miniapps.mesh.problem import mesh_of, ordering_of, planned
from miniapps.partition.pricing.program import program_of
from miniapps.runner.options import RunOptions
from miniapps.untrusted.program import Program


def program(config: Any, options: RunOptions, size: int) -> Program:
    """The program of a step on `size` ranks, without its app, problem and method. It needs an export by torch, which
    takes seconds. Raises UsageError or ChoiceError for a mesh that does not fit."""
    plan, flops = planned(config)
    return program_of(
        plan,
        mesh_of(config, options, size),
        options.policy.level,
        f"{config.model.name}, {config.mesh.recipe} over {config.mesh.mesh}",
        flops,
        options.threads,
        options.processor == "any",
        recorded=True,
        wire=config.training.wire,
        ordering=ordering_of(options),
    )
