"""Trainings one after the other, each with a group of torch of its own, which ends before its model (with "hook").

torch 2.13 itself then waits for ever, now and then: run by tests/mpi/test_hooked_mpi.py.
"""

import faulthandler
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import fpna

TRAININGS = 30


def train(store):
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    if sys.argv[1:] == ["hook"]:
        model.register_comm_hook(None, fpna.ddp_hook(ordering="direct"))
    model(torch.ones(4)).sum().backward()
    dist.all_reduce(torch.zeros(2))
    dist.destroy_process_group()


if __name__ == "__main__":
    faulthandler.dump_traceback_later(200, exit=True)
    whole = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    for number in range(TRAININGS):
        train(dist.PrefixStore(str(number), whole))
    os.write(1, b"ended\n")
