"""Times steps of plans, given as texts (`miniapps.partition.pricing.space`); rank 0 prints one line of JSON.

mpirun -n 2 python -m benchmarks.predict.plan_steps "gpt dp width=64 data=2 guarantee=none" ...
"""

from __future__ import annotations

import json
import sys
import time
from statistics import median

import numpy as np
import torch
from mpi4py import MPI

from miniapps.partition import models
from miniapps.partition.capture.shapes import graph_of
from miniapps.partition.cuts.mesh import parse
from miniapps.partition.execution.learn import Learner
from miniapps.partition.execution.run import Program
from miniapps.partition.planning.recipes import deck_of, plan_of
from miniapps.partition.pricing.space import Drawn, space_of
from miniapps.untrusted.program import mesh_text

WARM, SECONDS, FEWEST = 3, 0.5, 10  # steps before, time and number of the timed ones


def timed(comm, drawn: Drawn) -> tuple[float, float]:
    """(wall seconds, CPU seconds of this rank's thread) of a step, median."""
    model = models.model(drawn.model)
    deck = deck_of(model, {name: str(n) for name, n in drawn.sizes.items()})
    carriers = model.RECIPES[drawn.recipe]
    plan = comm.bcast(plan_of(model, deck, graph_of(model, deck), list(carriers)) if comm.rank == 0 else None)
    mesh = parse(mesh_text(drawn.mesh), carriers, comm.size)
    torch.manual_seed(0)
    network = model.module(deck)
    whole = {("parameter", key): x.detach() for key, x in network.named_parameters()}
    whole |= {("buffer", key): x for key, x in network.named_buffers()}
    whole |= {("input", str(k)): x for k, x in enumerate(model.inputs(deck))}
    program = Program(comm, plan, mesh, drawn.level)
    learner = Learner(program, whole)
    for _ in range(WARM):
        learner.step()
    walls, used = [], []
    begun = time.perf_counter()
    while True:
        comm.Barrier()
        wall, cpu = time.perf_counter(), time.thread_time()
        learner.step()
        walls.append(time.perf_counter() - wall)
        used.append(time.thread_time() - cpu)
        if comm.bcast(len(walls) >= FEWEST and time.perf_counter() - begun > SECONDS):
            break
    program.free()
    return median(walls), median(used)


def main() -> None:
    """Times all given plans on all ranks."""
    comm = MPI.COMM_WORLD
    rng = np.random.default_rng(0)
    found = [timed(comm, space_of(text).draw(rng)) for text in sys.argv[1:]]
    every = comm.gather(found)
    if comm.rank == 0:
        means = np.mean(every, axis=0)
        print(json.dumps({"wall": np.max(every, axis=0)[:, 0].tolist(), "cpu": means[:, 1].tolist()}))


if __name__ == "__main__":
    main()
