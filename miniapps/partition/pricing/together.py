"""The step of a drawn plan on all ranks of its mesh, with random weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from miniapps.partition import models
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import Plan
from miniapps.partition.execution.learn import Learner
from miniapps.partition.execution.run import Program
from miniapps.partition.planning.recipes import deck_of
from miniapps.partition.pricing.space import Drawn


def learner_of(
    comm, drawn: Drawn, plan: Plan, mesh: Mesh, inputs: Sequence[torch.Tensor], threads: int = 1
) -> Learner:
    """The learner of a plan that `space.prepared` returned with its mesh and inputs. Collective; the caller frees
    `program`."""
    model = models.model(drawn.model)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = model.module(deck_of(model, {name: str(n) for name, n in drawn.sizes.items()}))
    whole = {("parameter", key): x.detach() for key, x in network.named_parameters()}
    whole |= {("buffer", key): x for key, x in network.named_buffers()}
    whole |= {("input", str(k)): x for k, x in enumerate(inputs)}
    return Learner(Program(comm, plan, mesh, drawn.level, threads, wire=drawn.wire), whole)
