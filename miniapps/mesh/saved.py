"""The plan of a run as data, in place of the run: `python -m analysis price` predicts its time, for a ledger too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from miniapps.errors import RunError
from miniapps.mesh.problem import mesh_of, planned
from miniapps.partition.pricing.program import program_of
from miniapps.runner.options import RunOptions
from miniapps.runner.outcome import Check, Outcome
from miniapps.untrusted.prediction import method_hash
from miniapps.untrusted.program import Program, to_json


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
    )


def saved(ctx) -> Outcome:
    """Writes the program of a step to `mesh.save_plan`, on rank 0. Raises RunError if the file cannot be written."""
    config, options = ctx.config, ctx.options
    trouble = None
    if ctx.rank == 0:
        of_step = program(config, options, ctx.size)
        told = ctx.attributes
        known = {"app": told["app"], "problem": told["problem"], "method": method_hash(told)}
        try:
            Path(config.mesh.save_plan).write_bytes(to_json(msgspec.structs.replace(of_step, **known)))
        except OSError as error:
            trouble = f"--save-plan {config.mesh.save_plan}: {error.strerror}; choose another file"
    if trouble := ctx.comm.bcast(trouble):
        raise RunError(trouble)
    return Outcome({}, [Check("saved", True)], sentences=[f"PLAN {config.mesh.save_plan}"])
