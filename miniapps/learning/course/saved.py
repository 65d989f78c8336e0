"""The plan of a run as data, in place of the run: `python -m analysis price` predicts its time, for a ledger too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from miniapps.errors import RunError, UsageError
from miniapps.runner.outcome import Check, Outcome
from miniapps.untrusted.prediction import method_hash
from miniapps.untrusted.program import Program, to_json


def saved(ctx, path: str, program: Callable[[], Program]) -> Outcome:
    """Writes the program of a step to `path`, on rank 0, with the app, problem, method and environment of the run.
    Raises RunError if there is none, or if the file cannot be written. Collective."""
    trouble = None
    if ctx.rank == 0:
        told = ctx.attributes
        known = {key: told[key] for key in ("app", "problem", "environment")} | {"method": method_hash(told)}
        try:
            Path(path).write_bytes(to_json(msgspec.structs.replace(program(), **known)))
        except OSError as error:
            trouble = f"--save-plan {path}: {error.strerror}; choose another file"
        except UsageError as error:
            trouble = f"--save-plan {path}: {error}"
    if trouble := ctx.comm.bcast(trouble):
        raise RunError(trouble)
    return Outcome({}, [Check("saved", True)], sentences=[f"PLAN {path}"])
