"""Times a training step with `fpna.accumulate`, beside DistributedDataParallel's.

    mpirun -n 2 python -m benchmarks.apps.accumulating --json benchmarks/results/accumulating.json

A transformer of width 128 and a convolutional network train with a batch of 64. DDP has a part of it on each process;
`accumulate` has as many micro-batches as processes, and four times as many. Steps run in turn on all processes; the
table has the time of the slowest process and the ratio to DDP in the same round.
"""

from __future__ import annotations

import argparse
import tempfile
import time

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fpna
from benchmarks.harness.results import add_quiet, machine, report
from benchmarks.harness.turns import in_turn, ratio

BATCH, STEPS = 64, 3


def tokens() -> nn.Module:
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(128, 128))


def images() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, padding=1)]
    for _ in range(3):
        layers += [nn.Conv2d(32, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


MODELS = {
    "transformer, 32 tokens": (tokens, (BATCH, 32, 128)),
    "convolutions, 32 x 32": (images, (BATCH, 3, 32, 32)),
}


def ways(make, x: torch.Tensor, comm) -> dict:
    """{way: a function that trains STEPS steps and returns the seconds of the slowest process}."""
    mine = x.chunk(comm.size)[comm.rank]

    def timed(step):
        def run() -> float:
            comm.Barrier()
            begin = time.perf_counter()
            for _ in range(STEPS):
                step()
            return comm.allreduce(time.perf_counter() - begin, MPI.MAX)

        return run

    def by_ddp():
        torch.manual_seed(1)
        model = DistributedDataParallel(make())
        optimizer = torch.optim.AdamW(model.parameters())

        def step():
            optimizer.zero_grad()
            model(mine).square().mean().backward()
            optimizer.step()

        return step

    def accumulated(micro):
        torch.manual_seed(1)
        model = make()
        optimizer = torch.optim.AdamW(model.parameters())
        whole = fpna.accumulate(model, micro, comm)

        def step():
            optimizer.zero_grad()
            for part in whole.parts(x):
                model(part).square().mean().backward()
            optimizer.step()

        return step

    found = {"DDP": timed(by_ddp())}
    return found | {f"accumulate, micro={m}": timed(accumulated(m)) for m in (comm.size, 4 * comm.size)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", help="write the rows to this file")
    add_quiet(parser)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(f"{comm.bcast(folder)}/store", comm.size)
        dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)
        comm.Barrier()
    where, rows = machine() if comm.rank == 0 else {}, []
    for name, (make, shape) in MODELS.items():
        torch.manual_seed(2)
        tried = ways(make, torch.randn(*shape), comm)
        for run in tried.values():  # the first steps load libraries
            run()
        seconds = in_turn(tried, args.rounds)
        rows += [{"model": name, "way": way, "ranks": comm.size, "ms": sorted(own)[len(own) // 2] / STEPS * 1e3,
                  "/ DDP": ratio(own, seconds["DDP"])} for way, own in seconds.items()]  # fmt: skip
    if comm.rank == 0:
        report("accumulating", rows, where, args.json)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
