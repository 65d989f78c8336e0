"""A model on one mesh after the other: a line with a hash of loss, gradients and weights for each, printed by rank 0.

    mpirun -n P python partition.py MODEL[:ring] AXES LEVEL THREADS SHAPES MESH...

AXES cut the problem (`batch,heads`); sizes may follow (`batch,stage/layers=4,micro_batches=2`). A mesh is
`data=3:batch+experts,model=2:heads/SEED/SCHEDULE/AXIS`: sizes, the axes that each carries, the seed by which owners of
blocks are shuffled, the schedule of a pipeline, and an axis of which ranks own early and late blocks. Meshes of more
ranks than there are do not run. A line has the mesh, the hash, and the largest error of a gradient against autograd in
float64, as a part of the largest gradient.
"""

import hashlib
import sys

import numpy as np
import torch
from mpi4py import MPI

from miniapps.partition.cuts.mesh import Mesh, pairs
from miniapps.partition.execution.learn import Learner
from miniapps.partition.execution.run import Program
from miniapps.partition.graphs.repeat import split
from miniapps.partition.planning.recipes import micro_batches, plan_of
from tests.miniapps.partition.graphs import (
    exported,
)  # once by ranks that stay, however many runs they carry out

STEPS = 3  # of Adam


def mesh_of(text):
    """The mesh of a text."""
    axes, carriers = [], []
    spec, seed, schedule, zigzag = (*text.split("/"), "", "", "")[:4]
    for part in spec.split(","):
        name, _, carried = part.partition(":")
        name, size = name.split("=")
        axes.append((name, int(size)))
        carriers += [(axis, name) for axis in carried.split("+")]
    early_and_late = (zigzag,) if zigzag else ()
    return Mesh(tuple(axes), tuple(carriers), int(seed or 0), schedule or "1f1b", early_and_late)


def problem(name, text):
    """(plan, whole tensors of its sources, gradients by autograd in float64), of axes and sizes as text."""
    axes, _, sizes = text.partition("/")
    name, _, attention = name.partition(":")
    module, deck, graph = exported(name, **pairs(sizes, "sizes", "layers=4"))
    torch.manual_seed(0)
    network, inputs = module.module(deck), module.inputs(deck)
    parts = micro_batches(deck)
    plan = plan_of(module, deck, graph, axes.split(","), attention=attention or "gathered")
    whole = {("parameter", key): x.detach().clone() for key, x in network.named_parameters()}
    whole |= {("buffer", key): x.clone() for key, x in network.named_buffers()}
    by_part = split(inputs, parts)
    whole |= {("input", str(k)): x for k, x in enumerate(by_part)}
    network.double()
    for m in range(parts):
        of = by_part[m * len(inputs) : (m + 1) * len(inputs)]
        (network(*(x.double() if x.is_floating_point() else x for x in of)) / parts).backward()
    return plan, whole, {key: x.grad.numpy() for key, x in network.named_parameters()}


def outcome(program, whole, true):
    """(hash, error), of a program of a mesh."""
    learner = Learner(program, whole)
    digest, worst = hashlib.sha256(), 0.0
    largest = max(np.abs(x).max() for x in true.values())
    for step in range(STEPS):
        digest.update(learner.step().numpy().tobytes())
        if step == 0:
            own = dict(zip(program.gradients, learner.gradients, strict=True))
            for key, name in program.plan.gradients:
                gradient = program.whole(f"parameter.{key}", own.get((key, name))).numpy()
                digest.update(gradient.tobytes())
                worst = max(worst, np.abs(gradient - true[key]).max() / largest)
    for _, weights in sorted(learner.weights().items()):
        digest.update(weights.numpy().tobytes())
    return digest.hexdigest()[:16], worst


def main(name, axes, level, threads, shapes, *meshes):
    comm = MPI.COMM_WORLD
    given = problem(name, axes) if comm.rank == 0 else None
    plan, whole, true = comm.bcast(given)
    for text in meshes:
        mesh = mesh_of(text)
        if mesh.size > comm.size:
            continue
        some = comm.Split(int(comm.rank >= mesh.size), comm.rank)
        if comm.rank < mesh.size:
            program = Program(some, plan, mesh, level, int(threads), shapes)
            found = outcome(program, whole, true)
            program.free()
            if len(set(some.allgather(found[0]))) > 1:
                print(f"{text}: ranks differ", file=sys.stderr)
            if some.rank == 0:
                print(text, found[0], f"{found[1]:.1e}", flush=True)
        some.Free()


if __name__ == "__main__":
    main(*sys.argv[1:])
