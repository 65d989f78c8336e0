"""The factor `cpu` of campaigns: libraries held to an older processor, by the settings of `fpna cpus`."""

from __future__ import annotations

import os
from collections.abc import Iterable

from jobs.campaign import CampaignError
from jobs.plan import Task
from miniapps.system import environment
from miniapps.system.layers import LAYERS, NUMPY, PROCESSORS, beside, level_here, numpy_levels, together


def held(name: str) -> list[str]:
    """The words `env NAME=VALUE ...` before a program that hold all layers to the processor `name`; none for `this`."""
    settings = {layer.name: layer.levels for layer in LAYERS}
    settings[NUMPY] = numpy_levels(environment.base_arithmetic()["numpy"].split())
    found = [
        settings[layer][level]
        for processor in PROCESSORS
        for layer, level in processor.levels.items()
        if processor.name == name and level in settings[layer]
    ]
    variables = together(found)
    whole = beside(os.environ, variables)
    return ["env", *(f"{variable}={whole[variable]}" for variable in variables)] if variables else []


def require(tasks: Iterable[Task]) -> None:
    """Raises CampaignError for a task whose processor has instructions that this one lacks: no setting adds them."""
    here = environment.instructions()
    for task in tasks:
        newer = [each for each in PROCESSORS if each.name == task.cpu and each.needs > level_here()]
        if newer:
            raise CampaignError(
                f"cpu = {task.cpu!r}, line {task.line}: this processor ({here}) lacks instructions of "
                f"{newer[0].about}; run it on other nodes, or leave this processor out"
            )
