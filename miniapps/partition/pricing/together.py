"""The step of a drawn plan on all ranks of its mesh, with random weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import Plan
from miniapps.partition.execution.learn import Learner
from miniapps.partition.execution.run import Program
from miniapps.partition.pricing.space import Drawn


def learner_of(
    comm, drawn: Drawn, plan: Plan, mesh: Mesh, inputs: Sequence[torch.Tensor], threads: int = 1
) -> Learner:
    """The learner of a plan that `space.prepared` returned with its mesh and inputs. Collective; the caller frees
    `program`."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = drawn.problem.module(drawn.deck)
    whole = {("parameter", key): x.detach().clone() for key, x in network.named_parameters()}
    whole |= {("buffer", key): x.detach().clone() for key, x in network.named_buffers()}
    whole |= {("input", str(k)): x for k, x in enumerate(inputs)}
    return Learner(Program(comm, plan, mesh, drawn.level, threads, wire=drawn.wire), whole)
