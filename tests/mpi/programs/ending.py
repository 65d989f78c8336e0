"""A training by the hook in which rank 1 ends its part in the third step, in a way that the argument names."""

import os
import signal
import sys

import torch
import torch.distributed as dist
import torch_group
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fpna

torch_group.enter()

way, now = sys.argv[1], False


class Failing(torch.autograd.Function):
    """The identity, whose backward pass fails on rank 1 in the third step."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if now and way == "backward":
            raise RuntimeError("a backward pass that fails")
        return gradient


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(20, 30), nn.Linear(30, 1)

    def forward(self, x):
        return self.last(Failing.apply(self.first(x).tanh()))


torch.manual_seed(0)
torch.set_num_threads(1)
model = DistributedDataParallel(Model(), bucket_cap_mb=0.0001)
model.register_comm_hook(None, fpna.ddp_hook())
for step in range(1, 6):
    now = step == 3 and dist.get_rank() == 1
    if now and way == "leave":
        break
    if now and way == "exit":
        sys.exit(0)
    if now and way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if now and way == "loop":
        raise RuntimeError("a loop that fails")
    if now and way == "hook":
        from miniapps.programs import ddp

        ddp.array_of = lambda flat: 1 / 0
    model.zero_grad()
    model(torch.randn(4, 20)).square().sum().backward()
    print(f"rank {dist.get_rank()}: step {step}", flush=True)
dist.destroy_process_group()
