"""FSDP2 whose gradients are summed in a chosen order, or DistributedDataParallel with the same sums.

mpirun -n 2 python torch_fsdp.py RUN [fsdp | ddp]
torchrun --standalone --nproc-per-node 2 torch_fsdp.py RUN [fsdp | ddp]
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import fpna

if "WORLD_SIZE" in os.environ:  # torchrun, and launchers like it
    dist.init_process_group("gloo")
else:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(f"{comm.bcast(folder, 0)}/store", comm.size)
        dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)
        comm.Barrier()

torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1))
way = sys.argv[2] if len(sys.argv) > 2 else "fsdp"
if way == "fsdp":
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    fpna.fsdp_reduce_scatter(model, ordering="direct")  # the one line that is added
else:
    model = DistributedDataParallel(model)
    model.register_comm_hook(None, fpna.ddp_hook(ordering="direct"))

x = torch.randn(256, 64, generator=torch.Generator().manual_seed(100 + dist.get_rank()))
y = x.square().mean(dim=1, keepdim=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(50):
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()

with fpna.record(sys.argv[1], problem={"steps": 50}, method={"way": way}) as r:
    r.step(50)
    for number, parameter in enumerate(model.parameters()):
        whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
        r.fingerprint("weights", whole.detach().numpy(), block=number)
losses = torch.zeros(dist.get_world_size())
losses[dist.get_rank()] = loss.item()
dist.all_reduce(losses)
if dist.get_rank() == 0:
    print(f"{way}: loss {losses.mean():.4f} after 50 steps on {dist.get_world_size()} processes")
dist.destroy_process_group()
