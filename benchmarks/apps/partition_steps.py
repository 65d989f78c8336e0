"""Times of steps of one model on one mesh, for `benchmarks.apps.partition`; rank 0 prints them as one line of JSON.

mpirun -n P python -m benchmarks.apps.partition_steps MODEL SIZES ROUNDS MESH
"""

import argparse
import json
import time

import torch
from mpi4py import MPI

from benchmarks.harness.results import add_quiet
from benchmarks.harness.turns import in_turn
from kernels.contract import matmul
from miniapps.partition.capture.export import export
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.execution.learn import Learner
from miniapps.partition.execution.run import Program
from miniapps.partition.graphs.flops import PRODUCT, model_flops
from miniapps.partition.models import model as model_of
from miniapps.partition.planning.recipes import deck_of, plan_of


def main(name: str, sizes: str, rounds: int, mesh: str, quiet: bool) -> None:
    """Measure, on all ranks."""
    comm = MPI.COMM_WORLD
    torch.set_num_threads(1)
    grid, axis = mesh.split(":")
    module = model_of(name)
    deck = deck_of(module, dict(pair.split("=") for pair in sizes.split(",")))
    torch.manual_seed(0)
    network, inputs = module.module(deck), module.inputs(deck)
    graph = export(network, inputs) if comm.rank == 0 else None
    graph = comm.bcast(graph)
    plan = plan_of(module, deck, graph, [axis])
    carrier, _, size = grid.partition("=")
    whole = {("parameter", key): x.detach() for key, x in network.named_parameters()}
    whole |= {("buffer", key): x for key, x in network.named_buffers()}
    whole |= {("input", str(k)): x for k, x in enumerate(inputs)}
    ways, programs = {}, {}
    for level in ("none", "layout"):
        program = programs[level] = Program(
            comm, plan, Mesh(((carrier, int(size)),), ((axis, carrier),)), level
        )
        learner = Learner(program, whole)
        ways[level] = lambda program=program, values=learner.values: program(values)
    parameters = list(network.parameters())
    if comm.size == 1:
        ways["eager"] = lambda: torch.autograd.grad(network(*inputs), parameters)
    torch.set_num_threads(1)

    def measured(call):
        def both():
            comm.Barrier()
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            cpu = time.process_time() - cpu
            comm.Barrier()
            return cpu, time.perf_counter() - wall

        return both

    a, b = torch.randn(PRODUCT, PRODUCT), torch.randn(PRODUCT, PRODUCT)
    ways["product"] = lambda: matmul(a, b)
    found = in_turn({way: measured(call) for way, call in ways.items()}, rounds, quiet or comm.rank > 0)
    program = programs["layout"]
    if comm.rank == 0:
        product = min(cpu for cpu, _ in found.pop("product"))
        crossing = [total for total in program.totals if total.nbytes]
        print(
            json.dumps(
                {
                    "seconds": {way: [cpu for cpu, _ in times] for way, times in found.items()},
                    "wall": {way: [wall for _, wall in times] for way, times in found.items()},
                    "flops": model_flops(graph),
                    "rate": 2 * PRODUCT**3 / product,
                    "allreduces": len(crossing),
                    "nbytes": sum(total.nbytes for total in crossing)
                    + sum(e.nbytes for e in program.exchanges),
                }
            )
        )
    for program in programs.values():
        program.free()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.apps.partition_steps", description=__doc__)
    parser.add_argument("name", metavar="MODEL")
    parser.add_argument("sizes", metavar="SIZES", help="of its deck: width=256,layers=2")
    parser.add_argument("rounds", type=int, metavar="ROUNDS")
    parser.add_argument("mesh", metavar="MESH", help="data=2:batch")
    add_quiet(parser)
    main(**vars(parser.parse_args()))
