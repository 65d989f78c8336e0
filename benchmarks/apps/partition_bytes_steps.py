"""Bytes that leave each node in steps of one model on one mesh, a rank per node, for `benchmarks.apps.partition_bytes`;
rank 0 prints them as one line of JSON.

    mpirun -n P python -m benchmarks.apps.partition_bytes_steps MODEL SIZES RECIPE MESH STEPS
"""

import argparse
import json
import time
from pathlib import Path

import torch
from mpi4py import MPI

from benchmarks.harness.results import add_quiet
from jobs.cluster.traffic import HEADERS
from kernels.progress import Progress
from miniapps.partition.capture.export import export
from miniapps.partition.cuts.mesh import pairs, parse
from miniapps.partition.execution.learn import Learner
from miniapps.partition.execution.run import Program
from miniapps.partition.models import model as model_of
from miniapps.partition.planning.recipes import deck_of, plan_of
from miniapps.partition.showing.explain import explain

SETTLED_S = 0.2  # in which what was sent leaves the node


def sent() -> int:
    """Bytes that left this node since it was made, without headers: those of all interfaces but its own loop."""
    total = 0
    for line in Path("/proc/self/net/dev").read_text().splitlines()[2:]:
        name, _, numbers = line.partition(":")
        if name.strip() != "lo":
            nbytes, packets = (int(numbers.split()[k]) for k in (8, 9))
            total += nbytes - HEADERS * packets
    return total


def settled(comm) -> int:
    """`sent`, once all ranks are here and nothing is under way."""
    comm.Barrier()
    time.sleep(SETTLED_S)
    found = sent()
    comm.Barrier()
    return found


def main(name: str, sizes: str, recipe: str, mesh: str, steps: int, quiet: bool) -> None:
    """Take the steps, on all ranks."""
    comm = MPI.COMM_WORLD
    progress = Progress("benchmark", quiet=quiet or comm.rank > 0)
    torch.set_num_threads(1)
    model = model_of(name)
    deck = deck_of(model, pairs(sizes, "SIZES", "samples=8"))
    carriers = model.RECIPES[recipe]
    torch.manual_seed(0)
    network, inputs = model.module(deck), model.inputs(deck)
    graph = comm.bcast(export(network, inputs) if comm.rank == 0 else None)
    plan = plan_of(model, deck, graph, list(carriers))
    grid = parse(mesh, carriers, comm.size)
    whole = {("parameter", key): x.detach() for key, x in network.named_parameters()}
    whole |= {("buffer", key): x for key, x in network.named_buffers()}
    whole |= {("input", str(k)): x for k, x in enumerate(inputs)}
    program = Program(comm, plan, grid, "layout")
    learner = Learner(program, whole)
    learner.step()
    # What two readings and their barriers send themselves is taken off.
    first, second = settled(comm), settled(comm)
    for k in range(steps):
        progress.show(k / steps, f"step {k + 1} of {steps}")
        learner.step()
    progress.clear()
    last = settled(comm)
    nodes = comm.gather((last - second) - (second - first))
    planned = comm.gather(sum(exchange.nbytes for exchange in program.exchanges))
    program.free()
    if comm.rank == 0:
        found = explain(plan, grid)
        print(
            json.dumps(
                {
                    "crossed": [nbytes / steps for nbytes in nodes],
                    "planned": planned,
                    "explained": found["bytes"],
                    "collectives": found["collectives"],
                }
            )
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.apps.partition_bytes_steps", description=__doc__
    )
    parser.add_argument("name", metavar="MODEL")
    parser.add_argument("sizes", metavar="SIZES", help="of its deck: width=256,layers=2")
    parser.add_argument("recipe", metavar="RECIPE")
    parser.add_argument("mesh", metavar="MESH", help="data=2,model=2")
    parser.add_argument("steps", type=int, metavar="STEPS")
    add_quiet(parser)
    main(**vars(parser.parse_args()))
