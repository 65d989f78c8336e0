"""A network of four layers whose first and last layer share their weights, as a pipeline: a line MESH HASH ERROR for
each mesh, printed by rank 0, as by `partition.py`."""

import sys
from pathlib import Path

import torch
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).parent))

from partition import mesh_of, outcome

from miniapps.partition.capture.export import export
from miniapps.partition.cuts.axes import evenly
from miniapps.partition.execution.run import Program
from miniapps.partition.graphs.repeat import split
from miniapps.partition.planning.pipeline import staged
from miniapps.partition.planning.plan import plan

PARTS, SAMPLES, WIDTH = 3, 12, 8
MESHES = [
    "s=1:stage",
    "s=2:stage",
    "s=4:stage",
    "s=3:stage/5/circular",
    "d=2:batch,s=2:stage//gpipe",
    "d=4:batch",
]


class Tied(torch.nn.Module):
    """Four layers, the first and the last with one weight, which the second reads, too."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.layers[3].weight = self.layers[0].weight

    def forward(self, x, y):
        h = x
        for k, layer in enumerate(self.layers):
            h = torch.tanh(layer(h)) + (h @ self.layers[0].weight if k == 1 else 0)
        return ((h - y) ** 2).mean()


def problem():
    """As `partition.problem`."""
    torch.manual_seed(0)
    network = Tied()
    inputs = torch.randn(SAMPLES, WIDTH), torch.randn(SAMPLES, WIDTH)
    graph = export(network, inputs, micro_batches=PARTS)
    layers = tuple(f"layers.{k}" for k in range(4))
    axes = evenly("batch", SAMPLES // PARTS, 4), staged(graph, layers, 4)
    cuts = {k: ("batch", None) for k in range(2 * PARTS)}
    whole = {("parameter", key): x.detach().clone() for key, x in network.named_parameters()}
    whole |= {("input", str(k)): x for k, x in enumerate(split(inputs, PARTS))}
    network.double()(*(x.double() for x in inputs)).backward()
    return (
        plan(graph, axes, cuts, layers=layers),
        whole,
        {k: x.grad.numpy() for k, x in network.named_parameters()},
    )


def main():
    comm = MPI.COMM_WORLD
    found, whole, true = comm.bcast(problem() if comm.rank == 0 else None)
    for text in MESHES:
        mesh = mesh_of(text)
        some = comm.Split(int(comm.rank >= mesh.size), comm.rank)
        if comm.rank < mesh.size:
            program = Program(some, found, mesh, "layout")
            digest, error = outcome(program, whole, true)
            program.free()
            if some.rank == 0:
                print(text, digest, f"{error:.1e}", flush=True)
        some.Free()


if __name__ == "__main__":
    main()
