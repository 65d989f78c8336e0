"""Trainings by the hook of DistributedDataParallel. Rank 0 prints JSON: by choice the hash of the weights of all ranks,
or why the choice was refused.

Ranks are those of MPI under mpirun, else those that a launcher of torch gives in the environment.
"""

import hashlib
import json
import sys

import torch
import torch.distributed as dist
import torch_group
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fpna

CHOICES = [
    {}, {"accumulate": "working"}, {"ordering": "ring"}, {"ordering": "ring", "accumulate": "exact"},
    {"ordering": "recursive-doubling"}, {"ordering": "two-level"},
    {"ordering": "k-nomial:k=3", "accumulate": "float64"},
    {"wire": "fp8"}, {"wire": "sign:feedback=on"}, {"wire": "table:n=4", "accumulate": "exact"},
    {"ordering": "recursive-doubling", "wire": "sign:hops=every"},
    {"ordering": "library"}, {"ordering": "arrival"}, {"ordering": "ring", "accumulate": "exact", "wire": "packed"},
]  # fmt: skip

torch_group.enter()


def trained(choice):
    """The hash of the weights after four steps; the gradients of one of them are not finite."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(40, 60), nn.Tanh(), nn.Linear(60, 30), nn.Tanh(), nn.Linear(30, 1))
    model = DistributedDataParallel(network, bucket_cap_mb=0.005)  # several buckets
    try:
        model.register_comm_hook(None, fpna.ddp_hook(**choice))
    except ValueError as error:
        return str(error)
    for step in range(4):
        model.zero_grad()
        x = torch.randn(16, 40, generator=torch.Generator().manual_seed(100 * step + dist.get_rank()))
        scale = float("inf") if step == 2 else 1.0
        (model(x).square().sum() * 7.0 ** dist.get_rank() * scale).backward()
        finite = all(torch.isfinite(p.grad).all() for p in model.parameters())
        if finite == (step == 2):
            return f"gradients of step {step} are {'' if finite else 'not '}finite"
        for parameter in model.parameters() if finite else ():
            parameter.data -= 1e-3 * parameter.grad
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()


torch.set_num_threads(1)
results = {}
for choice in CHOICES:
    everywhere = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, trained(choice))
    results[json.dumps(choice)] = sorted(set(everywhere))
if dist.get_rank() == 0:
    print(
        json.dumps(
            {"mpi": "mpi4py.MPI" in sys.modules and sys.modules["mpi4py.MPI"].Is_initialized(), **results}
        )
    )
dist.destroy_process_group()
