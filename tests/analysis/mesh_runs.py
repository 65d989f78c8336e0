"""Runs over a mesh with given numbers, written by the real tracer."""

from math import nan

from miniapps.partition.showing.staged import GIVEN, LEAVING, Edge, Stage, Stages
from miniapps.trace import Tracer
from miniapps.trace.records import STAGES
from miniapps.trace.schema import CORE_RATE, MODEL_FLOPS, UTILISATION, rank_file
from tests.analysis.synthetic import attributes, write_result

PLAN = Stages(
    axes=("batch",), mesh="data=2", ranks=2, operations=5, gradients=3,
    stages=(Stage("enter", (), False, ("batch",), 3), Stage("enter", ("a", "b"), True, ("batch",), 2)),
    edges=(Edge(GIVEN, 0), Edge(0, 1), Edge(1, LEAVING, "all-reduce", ("batch",), 1, 4096)),
)  # fmt: skip


def write_mesh(out, utilisation, *, flops=4e9, rate=1e9, cpu=2.0, size=2, threads=1, plan=PLAN, **more):
    """Write a run into the new directory `out` and return it: the utilisation of each step, whose ranks took `cpu`
    seconds of processor time each; `plan`: Stages, text, or None."""
    out.mkdir(parents=True)
    config = {
        "run": {"threads": threads}, "model": {"name": "gpt"}, "mesh": {"recipe": "dp", "mesh": f"data={size}"},
    }  # fmt: skip
    method = {"run.guarantee": "layout", "mesh.recipe": "dp", "mesh.mesh": f"data={size}"}
    given = {"app": "training", "run_id": str(out), "config": config, "method": method, "repeats": 1, **more}
    for rank in range(size):
        tracer = Tracer(
            out / rank_file(rank), attributes(rank, size, "layout", "block-tree", **given), size=size
        )
        tracer.at(0, 0)
        if rank == 0:
            tracer.usage(MODEL_FLOPS, 0, flops)
            tracer.usage(CORE_RATE, 0, rate)
            if plan is not None:
                tracer.choice(STAGES, -1, plan.encode() if isinstance(plan, Stages) else plan, nan)
        for step, value in enumerate(utilisation, start=1):
            tracer.at(0, step)
            tracer.usage("cpu_time", step, cpu)
            if rank == 0:
                tracer.value("loss", 1.0 / step)
                tracer.usage(UTILISATION, step, value)
        tracer.close(complete=True)
    write_result(out)
    return out
