"""The training of watched.py by DDP, started by torchrun: watched_by_torchrun.py OUT."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fpna

dist.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 4)))
optimizer = torch.optim.AdamW(model.parameters())
with fpna.record(sys.argv[1], name="watched") as r:
    fpna.watch(model, r, optimizer=optimizer, every=1)
    for step in range(1, 4):
        r.step(step)
        x = torch.randn(12, 20, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(x.chunk(dist.get_world_size())[dist.get_rank()]).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
