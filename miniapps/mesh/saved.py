"""The plan of a run as data, in place of the run: `python -m analysis price` predicts its time, for a ledger too."""

from __future__ import annotations

from pathlib import Path

import msgspec

from miniapps.errors import RunError
from miniapps.mesh.problem import mesh_of, planned
from miniapps.partition.pricing.program import program_of
from miniapps.runner.outcome import Check, Outcome
from miniapps.untrusted.prediction import method_hash
from miniapps.untrusted.program import to_json


def saved(ctx) -> Outcome:
    """Writes the program of a step to `mesh.save_plan`, on rank 0. Raises RunError if the file cannot be written."""
    config, options = ctx.config, ctx.options
    trouble = None
    if ctx.rank == 0:
        plan, flops = planned(config)
        mesh = mesh_of(config, options, ctx.size)
        title = f"{config.model.name}, {config.mesh.recipe} over {config.mesh.mesh}"
        program = program_of(
            plan,
            mesh,
            options.policy.level,
            title,
            flops,
            options.threads,
            options.processor == "any",
            recorded=True,
        )
        told = ctx.attributes
        known = {"app": told["app"], "problem": told["problem"], "method": method_hash(told)}
        try:
            Path(config.mesh.save_plan).write_bytes(to_json(msgspec.structs.replace(program, **known)))
        except OSError as error:
            trouble = f"--save-plan {config.mesh.save_plan}: {error.strerror}; choose another file"
    if trouble := ctx.comm.bcast(trouble):
        raise RunError(trouble)
    return Outcome({}, [Check("saved", True)], sentences=[f"PLAN {config.mesh.save_plan}"])
