"""The all-reduce of a backend of torch.distributed (gloo, nccl, mpi, ucc, xccl), for `identify`.

NCCL and other backends for tensors on devices are tested with a stand-in of torch.distributed only.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from kernels.allreduce.execution.torch_ranks import of_all
from kernels.allreduce.instruments.libraries import Library, Opened, Way, nothing
from kernels.guarantees import ChoiceError

ON_HOST = ("gloo", "mpi", "ucc")  # backends for tensors in host memory


@contextlib.contextmanager
def started(backend: str, comm: Any) -> Iterator[Library]:
    """Starts torch's process group over `backend`; yields its all-reduce.

    Its ranks are those of `comm`, or the processes of torch's launcher. Raises ChoiceError if torch, the backend or a
    launcher is missing.
    """
    try:
        import torch
        import torch.distributed as dist
    except ModuleNotFoundError:
        raise ChoiceError("identify: --backend needs torch: pip install 'fpna-miniapps[torch]'") from None
    if not (dist.is_available() and backend in dist.Backend.backend_list and available(dist, backend)):
        have = ", ".join(name for name in dist.Backend.backend_list if available(dist, name))
        raise ChoiceError(f"identify: this torch has no backend {backend!r}; it has {have}")
    with tempfile.TemporaryDirectory() as folder:
        if comm.size > 1:
            store = dist.FileStore(f"{comm.bcast(folder)}/store", comm.size)
            dist.init_process_group(backend, store=store, rank=comm.rank, world_size=comm.size)
        elif "WORLD_SIZE" in os.environ:
            dist.init_process_group(backend)
        else:
            raise ChoiceError(
                "identify: start several processes: torchrun --nproc-per-node 4 -m fpna identify --backend "
                f"{backend}, or mpirun -n 4 fpna identify --backend {backend}"
            )
        ranks = comm if comm.size > 1 else of_all()
        try:
            name = f"torch {torch.__version__}, {backend}"
            yield library(dist, backend, name, ranks, device(torch, backend))
        finally:
            if ranks is not comm:
                ranks.Free()
            else:
                comm.bcast(None)  # the store stays until all ranks have come here
            dist.destroy_process_group()


def available(dist: Any, backend: str) -> bool:
    """Whether this build of torch has the backend."""
    asks = getattr(dist, f"is_{backend}_available", None)
    return bool(asks()) if asks else backend != "undefined" and backend in dist.Backend.backend_list


def device(torch: Any, backend: str) -> str:
    """The device for the tensors of a backend: the host, or one device for each process of the node."""
    if backend in ON_HOST:
        return "cpu"
    kind = "xpu" if backend == "xccl" else "cuda"
    local = int(os.environ.get("LOCAL_RANK") or os.environ.get("MPI_LOCALRANKID")
                or os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK") or 0)  # fmt: skip
    return f"{kind}:{local % max(1, getattr(torch, kind).device_count())}"


def library(dist: Any, backend: str, name: str, ranks: Any, place: str) -> Library:
    """The all-reduce of torch's default group on tensors at `place`. The total replaces the contribution, and torch
    numbers the processes of a group in ascending order."""
    import torch

    def opens(n: int, dtype: Any, way: Way) -> Opened:
        group = None if way.ranks is None else dist.new_group(list(way.ranks), backend=backend)
        member = way.ranks is None or ranks.rank in way.ranks
        kind = getattr(torch, np.dtype(dtype).name)
        tensor = torch.zeros(way.offset + n, dtype=kind, device=place)[way.offset :]

        def fill(contribution: np.ndarray) -> None:
            tensor.copy_(torch.from_numpy(np.array(contribution, dtype)))
            settle(torch, place)

        def run() -> None:
            if way.call == "nonblocking":
                dist.all_reduce(tensor, group=group, async_op=True).wait()
            else:
                dist.all_reduce(tensor, group=group)
            settle(torch, place)

        def result() -> np.ndarray:
            found: np.ndarray = tensor.cpu().numpy().copy()
            return found

        def free() -> None:
            if group is not None and member:
                dist.destroy_process_group(group)

        return Opened(fill, run if member else nothing, result, free)

    return Library(name, ranks, opens, ("blocking", "nonblocking"), copies=False, renumbers=False)


def settle(torch: Any, place: str) -> None:
    """Wait for the device of a tensor: its all-reduce returns before the sum is there."""
    kind = place.partition(":")[0]
    if kind != "cpu":
        getattr(torch, kind).synchronize(place)
