"""The hook of DistributedDataParallel under MPI: every section yields what failed on this rank; rank 0 prints all.

Run by tests/mpi/test_ddp_mpi.py as `mpirun -n P python ddp.py`; with `--cuda`, models are on a GPU.
"""

import contextlib
import sys
import tempfile

import numpy as np
import torch
import torch.distributed as dist
from mpi4py import MPI
from sections import COMM, raised, report, section
from torch.nn.parallel import DistributedDataParallel

import fpna
from kernels.allreduce.simulator import simulate

RANK, SIZE = COMM.rank, COMM.size
DEVICE = "cuda" if "--cuda" in sys.argv else "cpu"


def made():
    """A model of six tensors, of which three are small."""
    torch.manual_seed(3)
    layers = torch.nn
    return layers.Sequential(
        layers.Linear(40, 60), layers.ReLU(), layers.Linear(60, 30), layers.Tanh(), layers.Linear(30, 1)
    ).to(DEVICE)


def stream(step):
    """On a GPU, every other step on a stream of its own."""
    if DEVICE == "cpu" or step % 2 == 0:
        return contextlib.nullcontext()
    torch.cuda.synchronize()
    return torch.cuda.stream(torch.cuda.Stream())


def backward(model, step):
    x = torch.randn(32, 40, generator=torch.Generator().manual_seed(100 * step + RANK)).to(DEVICE)
    for parameter in model.parameters():
        parameter.grad = None
    with stream(step):
        (model(x).square().sum() * 10.0**RANK).backward()
        return [parameter.grad.cpu().numpy().copy() for parameter in model.parameters()]


def hooked(**axes):
    model = DistributedDataParallel(made(), bucket_cap_mb=0.005)  # several buckets
    model.register_comm_hook(None, fpna.ddp_hook(**axes))
    return model


def told(expected, message):
    if expected not in message:
        yield f"{expected!r} is not in {message!r}"


CASES = [
    {},
    {"ordering": "ring"},
    {"accumulate": "exact"},
    {"wire": "fp8"},
    {"wire": "table:n=4", "accumulate": "exact"},
    {"ordering": "recursive-doubling", "wire": "sign:hops=every"},
]


@section
def gradients_are_the_simulated_mean():
    for axes in CASES:
        model, plain = hooked(**axes), made()
        for step in range(3):  # DDP arranges its buckets anew after the first
            own = COMM.allgather(backward(plain, step))
            seen = backward(model, step)
            for number, gradient in enumerate(seen):
                wire = axes.get("wire", "as is")
                tensors = [gradient.shape] if "wire" in axes else None
                if axes.get("ordering") in ("ring", "recursive-doubling"):
                    # These add by chunks of a bucket: alike on all ranks, and near the mean.
                    near = np.allclose(
                        gradient, sum(each[number] for each in own) / SIZE, rtol=1e-4, atol=1e-3
                    )
                    if not near and wire == "as is":
                        yield f"{axes}, step {step}, tensor {number}: far from the mean"
                    if len(set(COMM.allgather(gradient.tobytes()))) != 1:
                        yield f"{axes}, step {step}, tensor {number}: other bits on other ranks"
                    continue
                contributions = [each[number].reshape(1, -1) for each in own]
                total = simulate(
                    "direct",
                    contributions,
                    accumulation=axes.get("accumulate", "working"),
                    wire=wire,
                    tensors=tensors,
                )[RANK]
                if gradient.tobytes() != (total / np.float32(SIZE)).tobytes():
                    yield f"{axes}, step {step}, tensor {number}: other bits than simulated"


@section
def what_cannot_be_is_told():
    yield from told("no parameter", raised(fpna.ChoiceError, lambda: fpna.ddp_hook(wire="fp8:n=3")))
    yield from told(
        "choose ordering direct", raised(fpna.ChoiceError, lambda: fpna.ddp_hook(ordering="ring", wire="fp8"))
    )
    if SIZE > 1:
        model = DistributedDataParallel(made())
        model.register_comm_hook(None, fpna.ddp_hook(MPI.COMM_SELF))
        yield from told("the process group has", raised(Exception, lambda: backward(model, 0)))
    model = DistributedDataParallel(made().to(torch.bfloat16))
    model.register_comm_hook(None, fpna.ddp_hook())
    x = torch.ones(2, 40, dtype=torch.bfloat16, device=DEVICE)
    yield from told("gradients are bfloat16", raised(Exception, lambda: model(x).sum().backward()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(f"{COMM.bcast(folder, 0)}/store", SIZE)
        dist.init_process_group("gloo", store=store, rank=RANK, world_size=SIZE)
        COMM.Barrier()
    report()
    dist.destroy_process_group()
