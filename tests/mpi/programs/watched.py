"""A watched training on several ranks: watched.py OUT [WAY]; by DDP, or as WAY says."""

import sys
import tempfile

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fpna

comm, out, way = MPI.COMM_WORLD, sys.argv[1], (sys.argv[2:] or ["ddp"])[0]
with tempfile.TemporaryDirectory() as folder:
    store = dist.FileStore(f"{comm.bcast(folder)}/store", comm.size)
    dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)
    comm.Barrier()
torch.manual_seed(0)
torch.set_num_threads(1)
model: nn.Module = nn.Sequential(
    nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 4 + (way == "other" and comm.rank))
)
if way == "fsdp":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=init_device_mesh("cpu", (comm.size,)))
elif way not in ("alone", "other"):
    model = DistributedDataParallel(model)
    if way == "ring":
        model.register_comm_hook(None, fpna.ddp_hook(ordering="k-nomial:k=3", accumulate="working"))
    if way == "wrong":

        def wrong(state, bucket):
            work = dist.all_reduce(bucket.buffer().mul_(1 + 2.0**-20), async_op=True)
            return work.get_future().then(lambda done: done.value()[0].div_(comm.size))

        model.register_comm_hook(None, wrong)
optimizer = torch.optim.AdamW(model.parameters())
with fpna.record(out, name="watched") as r:
    fpna.watch(model, r, optimizer=optimizer, every=1)
    for step in range(1, 4):
        r.step(step)
        x = torch.randn(12, 20, generator=torch.Generator().manual_seed(step))
        mine = x if way == "alone" else x.chunk(comm.size)[comm.rank]
        optimizer.zero_grad()
        model(mine).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
