"""`run`: executes the plan that `explain` shows on the ranks of this launch, and compares gradients with torch's."""

from __future__ import annotations

import argparse
import copy
import hashlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernels.as_json import document
from kernels.guarantees import ChoiceError
from miniapps.errors import UsageError
from miniapps.partition.asking import planned
from miniapps.partition.cuts.axes import AxisError
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import Compute, Plan
from miniapps.partition.execution.wires import require_wire
from miniapps.partition.graphs.repeat import split
from miniapps.partition.own.loading import named
from miniapps.partition.planning.recipes import micro_batches
from miniapps.partition.rules.manual import MANUAL
from miniapps.system.heap import keep_freed_memory
from miniapps.system.world import speaks, world
from miniapps.untrusted.text import tell


def run(options: argparse.Namespace, prog: str) -> int:
    """Executes a command line on all ranks; returns the exit code. Rank 0 plans, and a refusal ends all ranks."""
    keep_freed_memory()
    try:
        comm = world()
    except UsageError as error:
        if speaks():
            tell(f"{prog}: {error}", sys.stderr, keep="\n")
        return 2
    plan, mesh, whole, true, refused = comm.bcast(prepared(options, comm.size) if comm.rank == 0 else None)
    if refused:
        if comm.rank == 0:
            tell(f"{prog}: {refused}", sys.stderr, keep="\n")
        return 2
    if comm.rank and any(isinstance(step, Compute) and step.kernel == MANUAL for step in plan.steps):
        named(options.model)  # its functions, which rank 0 has
    found = executed(comm, plan, mesh, whole, true, options)
    if comm.rank == 0:
        show(options, plan, mesh, found)
    return 0


def prepared(options: argparse.Namespace, ranks: int) -> tuple:
    """Returns (plan, mesh, whole sources by (kind, key), gradients by torch in float64, ""), or Nones and a refusal."""
    import torch

    try:
        for name in ("steps", "threads"):
            if not 1 <= getattr(options, name) <= 10**6:
                raise UsageError(f"--{name} {getattr(options, name)}: give a number of 1 or more")
        require_wire(options.wire, options.guarantee)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            found = planned(options, ranks)
            problem, deck = found.problem, found.deck
            module, inputs = problem.module(deck), problem.inputs(deck)
            parts = micro_batches(deck)
    except (UsageError, ChoiceError, AxisError) as error:
        return None, None, None, None, str(error)
    whole = {("parameter", key): x.detach().clone() for key, x in module.named_parameters()}
    whole |= {("buffer", key): x.detach().clone() for key, x in module.named_buffers()}
    whole |= {("input", str(k)): x.detach().clone() for k, x in enumerate(split(inputs, parts))}
    return found.plan, found.mesh, whole, by_torch(found.plan, module, inputs, problem.call, parts), ""


def by_torch(
    plan: Plan, module: Any, inputs: tuple, call: Callable, parts: int
) -> dict[str, np.ndarray] | None:
    """The gradients of the mean loss of `parts` micro-batches by torch in float64; None if the step draws random
    numbers."""
    if any(isinstance(step, Compute) and step.kernel == "random" for step in plan.steps):
        return None
    wide = copy.deepcopy(module).double()
    wide.zero_grad(set_to_none=True)
    given = split([x.double() if x.is_floating_point() else x for x in inputs], parts)
    for m in range(parts):
        (call(wide, *given[m * len(inputs) : (m + 1) * len(inputs)]) / parts).backward()
    return {key: x.grad.numpy() for key, x in wide.named_parameters() if x.grad is not None}


def executed(
    comm, plan: Plan, mesh: Mesh, whole: Mapping, true: Mapping | None, options: argparse.Namespace
) -> dict[str, Any]:
    """Losses, fingerprint and error of the steps. Collective."""
    from miniapps.partition.execution.learn import Learner
    from miniapps.partition.execution.run import Program

    program = Program(comm, plan, mesh, options.guarantee, options.threads, wire=options.wire)
    learner = Learner(program, whole)
    digest, losses, worst = hashlib.sha256(), [], 0.0
    largest = max((np.abs(x).max(initial=0.0) for x in (true or {}).values()), default=0.0) or 1.0
    for step in range(options.steps):
        loss = learner.step()
        losses.append(float(loss))
        digest.update(loss.numpy().tobytes())
        if step == 0:
            own = dict(zip(program.gradients, learner.gradients, strict=True))
            for key, name in plan.gradients:
                gradient = program.whole(f"parameter.{key}", own.get((key, name))).numpy()
                digest.update(gradient.tobytes())
                if true is not None:
                    worst = max(worst, float(np.abs(gradient - true[key]).max(initial=0.0) / largest))
    for _, weights in sorted(learner.weights().items()):
        digest.update(weights.numpy().tobytes())
    program.free()
    return {
        "losses": losses,
        "fingerprint": digest.hexdigest()[:32],
        "error": None if true is None else worst,
    }


def show(options: argparse.Namespace, plan: Plan, mesh: Mesh, found: Mapping[str, Any]) -> None:
    """Print the result."""
    if options.json:
        told = dict(mesh=dict(mesh.axes), problem=plan.hash, guarantee=options.guarantee, **found)
        tell(document(1, "partition run", model=options.model, **told), keep="\n")
        return
    tell(
        f"{options.model}, {options.recipe} over {mesh}, guarantee {options.guarantee}; problem {plan.hash[:12]}"
    )
    tell(f"loss {', '.join(f'{loss:.6g}' for loss in found['losses'])}")
    error = found["error"]
    if error is None:
        tell("gradients: not compared with torch's, since the step draws random numbers")
    else:
        tell(f"gradients: within {error:.1e} of the largest, by torch in float64 on one rank")
    tell(f"FINGERPRINT {found['fingerprint']}")
