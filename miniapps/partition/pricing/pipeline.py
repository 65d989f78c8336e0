"""The bubble of a pipeline: the part of the ranks' time in which they wait for other stages.

    about = pipeline_of(plan, mesh)                      # from the model FLOPs of each stage
    bubble([1, 1, 1, 1], [2, 2, 2, 2], 8)                # from seconds of each stage: 3 / 11

Equal stages on a rank each wait (S - 1) / (M + S - 1) of the time, with S stages and M micro-batches (Huang et al.
2019, arXiv 1811.06965), under `gpipe` and `1f1b`. With V stages on each of R ranks, owned in turn, it is
(R - 1) / (V M + R - 1) under `circular` (Narayanan et al. 2021, arXiv 2104.04473).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import BACKWARD, FORWARD, STAGE, Compute, Plan, step_results
from miniapps.partition.graphs.flops import node_flops
from miniapps.partition.graphs.graph import Node, Tensor
from miniapps.partition.planning.schedule import chain, simulate


@dataclass(frozen=True)
class Pipeline:
    """A pipeline on a mesh: its stages, the ranks along them, micro-batches, schedule, and predicted bubble."""

    stages: int
    ranks: int
    micro_batches: int
    schedule: str
    bubble: float

    def few(self) -> str:
        """The sentence about too few micro-batches for so many ranks; "" if there are enough."""
        if self.ranks <= self.micro_batches:
            return ""
        return (
            "There are more ranks along the stages than micro-batches, so some always wait; choose at least "
            f"{self.ranks} micro-batches."
        )


def bubble(
    forward: Sequence[float],
    backward: Sequence[float],
    micro_batches: int,
    owners: Sequence[int] | None = None,
    schedule: str = "1f1b",
) -> float:
    """The part of the ranks' time in which they wait, from the seconds of a forward and a backward pass of one
    micro-batch through each stage; messages take no time. `owners`: the rank of each stage, by default a rank each."""
    by = list(range(len(forward))) if owners is None else list(owners)
    of = {FORWARD: forward, BACKWARD: backward}
    times = simulate(chain(len(forward), micro_batches), by, lambda job: of[job[2]][job[0]], schedule)
    length = max(slot.end for slot in times)
    worked = sum(slot.end - slot.start for slot in times)
    return 1 - worked / (length * len(set(by))) if length else 0.0


def pipeline_of(plan: Plan, mesh: Mesh) -> Pipeline | None:
    """The pipeline of a plan on a mesh; None without an axis `stage`. Its bubble follows from the model FLOPs of each
    stage, as if all kernels had one rate."""
    if not plan.stages:
        return None
    axis = plan.axis(STAGE)
    count = 1 + max(micro for micro, passes in plan.tasks.values() if passes in (FORWARD, BACKWARD))
    owners = mesh.owners(axis).tolist()
    work = stage_flops(plan)
    forward, backward = (
        [work[stage, passes] for stage in range(axis.blocks)] for passes in (FORWARD, BACKWARD)
    )
    waits = bubble(forward, backward, count, owners, mesh.schedule)
    return Pipeline(axis.blocks, len(set(owners)), count, mesh.schedule, waits)


def stage_flops(plan: Plan) -> dict[tuple[int, str], int]:
    """The model FLOPs of each stage and pass, for all micro-batches of a step together."""
    shapes = {name: value.shape for name, value in plan.values.items()}
    found = {(stage, way): 0 for stage in range(plan.axis(STAGE).blocks) for way in (FORWARD, BACKWARD)}
    for step in plan.steps:
        if isinstance(step, Compute) and (way := plan.tasks[step.node][1]) in (FORWARD, BACKWARD):
            results = tuple(Tensor(name, shapes[name], "") for name in step_results(step))
            node = Node(step.node, step.target, step.args, step.kwargs, results)
            for stage in plan.stages[results[0].name]:
                found[stage, way] += node_flops(node, shapes)
    return found
