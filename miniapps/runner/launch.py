"""Rank 0 parses and checks the command line, and completes the configuration for all ranks."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernels.allreduce import emulation
from miniapps.errors import UsageError
from miniapps.runner import commandline, config, faults, replay
from miniapps.runner.duplicates import require_duplicable
from miniapps.runner.options import Common, RunOptions
from miniapps.runner.replay import Replay
from miniapps.system import environment, resources, scope
from miniapps.system.place import directory
from miniapps.trace.head import problem_hash
from miniapps.untrusted import Refused
from miniapps.untrusted.ledger import read_ledger
from miniapps.untrusted.text import tell


@dataclass(frozen=True)
class Launch:
    """One launch of one application."""

    app: str
    size: int
    options: RunOptions
    config: Any
    effective: dict[str, Any]  # all options by section
    problem: str
    problem_options: dict[str, Any]
    method: dict[str, Any]
    chosen: dict[str, Any]  # options that the application completed or changed
    stated: dict[str, Any]  # effects of options on guarantees, `config.stated`
    out: Path
    run_id: str
    started: str
    environment: dict[str, Any]
    faults: list[faults.Fault]
    replay: Replay | None
    ledger: dict[str, Any] | None  # number of rows and last hash of the ledger of predictions

    def attributes(self) -> dict[str, Any]:
        """The attributes shared by the traces of all ranks."""
        return {
            "app": self.app,
            "config": self.effective,
            "problem": self.problem,
            "problem_options": self.problem_options,
            "method": self.method,
            "options": self.stated,
            "guarantee": self.options.guarantee,
            "seed": self.options.seed,
            "repeats": self.options.repeats,
            "run_id": self.run_id,
            "allocation_id": environment.allocation_id(),
            "started": self.started,
        } | ({} if self.ledger is None else {"ledger": self.ledger})

    def result(self, status: str, code: int) -> dict[str, Any]:
        """The part of result.json that every run has, failed ones included."""
        return self.attributes() | {
            "status": status,
            "exit_code": code,
            "run": str(self.out),
            "size": self.size,
            "environment": self.environment,
        }


def prepare(app: Any, argv: list[str], size: int) -> Launch | None:
    """Returns the launch of `app` on `size` ranks, with its directory created; None after printing a list for `--list`.
    Raises UsageError, ChoiceError or BlocksError before it creates anything."""
    options, own, only_list = commandline.parse(
        app, argv, os.environ, lambda run: replay.problem_of(run, app.name)
    )
    known = commandline.known_options(app)
    recorded = None if only_list or options.replay is None else replayed(options, options.replay)
    given = config.effective(known, Common(options), own)
    app.fill_in(own, options, size)
    effective = config.effective(known, Common(options), own)
    if only_list:
        from miniapps.runner.listing import listing  # imports all kernels; a run may need few

        tell(listing(app, known, effective), keep="\n")
        return None
    if options.device == "cuda" and (reason := environment.no_cuda()):
        raise UsageError(f"--device cuda: {reason}; or compute with --device cpu")
    injected = check(app, own, options, size)
    predicted = None if options.ledger is None else ledger_of(options.ledger)
    if recorded is None or not recorded.trees:
        options.policy.require_files()
    if options.links is not None:
        emulation.links_of(options.links, size)
    resources.require_threads(options.threads, size)
    if options.device == "cpu" and (memory := app.part("memory")):
        resources.require_memory(memory(own, options, size), size)
    defining = config.of_role(known, effective, "problem")
    problem = problem_hash(app.name, defining)
    if recorded is not None:
        flags = {o.key: o.flag or f"--set {o.key}=" for o in known}
        recorded.require(app.name, defining, size, flags)
    now = datetime.now(UTC)
    run_id = f"{app.name}-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    return Launch(
        app=app.name,
        size=size,
        options=options,
        config=own,
        effective=effective,
        problem=problem,
        problem_options=defining,
        method=config.of_role(known, effective, "method"),
        chosen={
            o.key: value
            for o in known
            if (value := effective[o.section][o.name]) != given[o.section][o.name]
            and given[o.section][o.name] is not None
        },
        stated=config.stated(known),
        replay=recorded,
        ledger=predicted,
        environment=environment.shared() | scope.stated(options.processor, options.guarantee),
        faults=injected,
        run_id=run_id,
        started=now.isoformat(timespec="milliseconds"),
        out=directory(Path(options.out or f"runs/{run_id}")),  # last, after all checks
    )


def check(app: Any, own: Any, options: RunOptions, size: int) -> list[faults.Fault]:
    """Checks a configuration for `size` ranks and returns its faults. Raises UsageError, ChoiceError or BlocksError for
    one that cannot run. Ignores the resources of this node, because campaigns are checked on other machines."""
    options.policy.check()
    require_duplicable(options, size)
    injected = [faults.parse(spec, size, options.repeats) for spec in options.fault]
    if validate := app.part("validate"):
        validate(own, options, size)
    require_processor(app, own, options)
    if injected and (targets := app.part("targets")):
        faults.require_targets(injected, app.name, targets(own, options, size))
    return injected


def require_processor(app: Any, own: Any, options: RunOptions) -> None:
    """Raises UsageError for --processor any with a part whose bits follow the processor, or without a guarantee."""
    if options.processor != "any":
        return
    reason = None
    if options.guarantee == "none":
        reason = (
            "--guarantee none promises no bits, on any processor; choose --guarantee run, layout or exact"
        )
    elif options.device != "cpu":
        reason = f"--device {options.device} computes on another kind of processor; choose --device cpu"
    elif follows := app.part("follows"):
        reason = follows(own, options)
    if reason:
        raise UsageError(f"--processor any: {reason}")


def ledger_of(path: str) -> dict[str, Any]:
    """Checks the whole ledger of predictions; returns its number of `rows` and its `head`, the hash of the last row.
    Raises UsageError."""
    try:
        ledger = read_ledger(path)
    except Refused as error:
        raise UsageError(f"--ledger {error}") from None
    except OSError as error:
        raise UsageError(
            f"--ledger {path}: cannot be read: {error.strerror}; `python -m analysis predict --ledger {path}` writes it"
        ) from error
    return {"rows": len(ledger.rows), "head": ledger.head}


def replayed(options: RunOptions, run: str) -> Replay:
    """Reads the records of `run` for --replay. Sets `options.allreduce` to the ordering of recorded orders of arrival
    or packings of trees. Raises UsageError where the option names another ordering."""
    record = replay.read(run)
    if record.orders:
        if options.allreduce not in (None, "arrival"):
            raise UsageError(
                f"--replay {run}: an order of arrival cannot be repeated with --allreduce "
                f"{options.allreduce}; leave --allreduce out"
            )
        options.allreduce = "arrival"
    if record.trees:
        if options.allreduce is not None and options.allreduce.partition(":")[0] != "trees":
            raise UsageError(
                f"--replay {run}: sums along trees cannot be repeated with --allreduce {options.allreduce}; leave "
                "--allreduce out"
            )
        options.allreduce = record.trees
    return record
