"""Times a training step of DistributedDataParallel with gradients summed by `fpna.ddp_hook`, beside DDP's own sums.

    python -m benchmarks.apps.ddp --json benchmarks/results/ddp.json
    python -m benchmarks.apps.ddp 2 --rounds 15

| variant | method that sums the gradients |
|---|---|
| DDP | DDP's own all-reduce, gloo |
| DDP fp16 | torch's fp16_compress_hook |
| DDP PowerSGD | torch's powerSGD_hook, rank 1, which changes the gradients |
| the others | `fpna.ddp_hook` with that ordering, accumulation and wire |

Parts are numbers of processes, started by MPICH on one node. The network has four layers of 1024 x 1024 float32, 16 MiB
of gradient in buckets of 4 MiB; a batch is 8 samples. PowerSGD has one bucket, since with several it hangs over gloo.
All variants take turns step by step in one job; a time is that of the slowest process.
"""

import json
import sys
import tempfile

import numpy as np

from benchmarks.harness.launching import launcher, output_of
from benchmarks.harness.results import parts_parser, run_parts
from benchmarks.harness.turns import in_turn, ratio

HOOKS = {
    "direct": {"accumulate": "working"},
    "direct over fp8": {"accumulate": "working", "wire": "fp8"},
    "direct over table:n=4": {"accumulate": "working", "wire": "table:n=4"},
    "direct over sign": {"accumulate": "working", "wire": "sign"},
    "direct in exact": {},
    "direct in exact over fp8": {"wire": "fp8"},
}
OWN = "DDP"
PARTS = ("2", "4")
LIMIT_S = 600


def main(argv=None) -> None:
    """Measures the requested parts."""
    parser = parts_parser("apps.ddp", __doc__, dict.fromkeys(PARTS), 11)
    run_parts(
        "apps.ddp", parser, {part: lambda options, part=part: rows(part, options) for part in PARTS}, argv
    )


def rows(part: str, options) -> list[dict]:
    """A row for each variant: its time for a step, and the ratio to DDP's own, round by round."""
    command, extra = launcher("mpich")
    command += ["-n", part, sys.executable, "-m", "benchmarks.apps.ddp", "--worker", str(options.rounds)]
    seconds = json.loads(output_of(command, extra, LIMIT_S).splitlines()[-1])
    return [
        {
            "processes": int(part),
            "variant": name,
            "ms": float(np.median(times) * 1e3),
            "/ DDP": ratio(times, seconds[OWN]),
            "raw": times,
        }
        for name, times in seconds.items()
    ]


def worker(rounds: int) -> None:
    """Times a step of every variant in turn on this job's processes; rank 0 prints the seconds of the slowest."""
    import torch
    import torch.distributed as dist
    from mpi4py import MPI
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel

    import fpna

    comm = MPI.COMM_WORLD
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(f"{comm.bcast(folder, 0)}/store", comm.size)
        dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)
        comm.Barrier()

    def model(bucket=4):
        torch.manual_seed(1)
        layers = [torch.nn.Linear(1024, 1024) for _ in range(4)]
        return DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=bucket)

    models = {OWN: model(), "DDP fp16": model(), "DDP PowerSGD": model(64)}
    models["DDP fp16"].register_comm_hook(None, default_hooks.fp16_compress_hook)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    models["DDP PowerSGD"].register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for name, axes in HOOKS.items():
        models[name] = model()
        models[name].register_comm_hook(None, fpna.ddp_hook(**axes))
    x = torch.randn(8, 1024, generator=torch.Generator().manual_seed(comm.rank))

    def step(network) -> float:
        comm.Barrier()
        begin = MPI.Wtime()
        network(x).square().mean().backward()
        return comm.allreduce(MPI.Wtime() - begin, MPI.MAX)

    for network in models.values():  # DDP arranges buckets after the first step, PowerSGD starts at the third
        for _ in range(3):
            step(network)
    seconds = in_turn(
        {name: lambda n=network: step(n) for name, network in models.items()}, rounds, quiet=True
    )
    if comm.rank == 0:
        print(json.dumps(seconds))
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(int(sys.argv[2]))
    else:
        main()
