"""A network of four layers that depend on each other in unusual ways, as a pipeline: a line MESH HASH ERROR for each
mesh, printed by rank 0, as by `partition.py`.

    mpirun -n 4 python networks.py tied|skipping
"""

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


class Skipping(torch.nn.Module):
    """Four layers that share a norm and a scale, with values that skip layers, and a loss with all weights in it."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.scale = torch.nn.Parameter(torch.ones(WIDTH))
        self.norm = torch.nn.LayerNorm(WIDTH)

    def forward(self, x, y):
        h, kept = x, []
        for k, layer in enumerate(self.layers):
            kept.append(h)
            h = torch.relu(self.norm(layer(h) * self.scale.exp()))
            if k == 2:
                h = torch.cat([h[:, :4], kept[0][:, 4:]], 1)
            elif k == 3:
                h = h + kept[1] * kept[2]
        weights = sum(layer.weight.square().sum() for layer in self.layers)
        return ((h - y) ** 2).mean() + 0.01 * weights + 0.1 * self.scale.sum()


NETWORKS = {"tied": Tied, "skipping": Skipping}


def problem(name):
    """As `partition.problem`."""
    torch.manual_seed(0)
    network = NETWORKS[name]()
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


def main(name):
    comm = MPI.COMM_WORLD
    found, whole, true = comm.bcast(problem(name) if comm.rank == 0 else None)
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
    main(*sys.argv[1:])
