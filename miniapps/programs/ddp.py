"""A communication hook for PyTorch's DistributedDataParallel: gradients are summed by a chosen ordering, in a chosen
accumulation, over a chosen wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from kernels.allreduce import Reduction, plan
from kernels.environment import guarded
from kernels.wires import PLAIN
from miniapps.system.world import require_launch

if TYPE_CHECKING:
    import torch
    from torch.distributed import GradBucket

Hook = Callable[[Any, "GradBucket"], "torch.futures.Future[torch.Tensor]"]
TYPES = ("float32", "float64", "float16")


def ddp_hook(
    comm: MPI.Intracomm | None = None,
    *,
    ordering: str = "direct",
    accumulate: str = "working",
    wire: str = PLAIN,
    check: bool = False,
) -> Hook:
    """A hook for `model.register_comm_hook(None, fpna.ddp_hook(...))`: the mean over ranks of each bucket of gradients.

    `ordering`, `accumulate` and `wire` are those of `kernels.allreduce.Reduction`; every parameter's gradient is a
    tensor of its own to the wire. `comm`: the ranks, MPI.COMM_WORLD if not given, as many as the process group has; the
    mean does not depend on which process of the group is which rank. Buckets are float32, float64 or float16 (the two
    last without a wire that loses something), in host memory or on a GPU that CuPy knows.

    A bucket's sum is under way while the backward pass goes on; all end with the last bucket. The guarantee is that of
    the ordering: bits repeat on as many ranks. That they be the same on another number of ranks takes gradients that
    do not depend on it, one per micro-batch: see miniapps.training.

    Raises ChoiceError for what does not go together; the hook raises ValueError where the process group is not as large
    as the communicator, TypeError for gradients of another type.
    """
    require_launch("fpna.ddp_hook")
    ranks: MPI.Intracomm = MPI.COMM_WORLD if comm is None else comm
    # What does not go together is told before training begins.
    Reduction(ordering, (1,), np.dtype(np.float32), accumulation=accumulate, wire=wire)
    buckets = _Buckets(
        ranks, {"ordering": ordering, "accumulation": accumulate, "wire": wire, "check": check}
    )
    # The backward pass runs on threads of torch, with the floating-point environments that these have.
    begin = buckets.begin if ordering == "library" else guarded(buckets.begin)
    return lambda state, bucket: begin(bucket)  # DDP refuses annotations that are text, as here they would be


class _Buckets:
    """The reducers of the buckets, by shape, and what is under way."""

    def __init__(self, comm: MPI.Intracomm, axes: dict[str, Any]):
        self._comm, self._axes = comm, axes
        self._reducers: dict[int, Any] = {}  # by index of the bucket
        # Reducer, bucket as a tensor, and what was promised of it.
        self._begun: list[tuple[Any, torch.Tensor, torch.futures.Future[torch.Tensor]]] = []

    def begin(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Begin the sum of a bucket; its mean comes with the last bucket."""
        import torch

        flat = bucket.buffer()
        reducer = self._reducer(bucket.index(), flat, bucket.gradients())
        for begun, *_ in self._begun:
            begun.progress()
        if flat.is_cuda:  # on the stream of the backward pass, which the copy to the host does not know
            torch.cuda.current_stream(flat.device).synchronize()
        contribution, out = _arrays(flat)
        reducer.start(contribution, out)
        # One that knows the device makes the stream that reads the mean wait for the one that writes it.
        future = torch.futures.Future[torch.Tensor](devices=[flat.device] if flat.is_cuda else None)
        self._begun.append((reducer, flat, future))
        if bucket.is_last():
            begun, self._begun = self._begun, []
            for each, tensor, promised in begun:
                total = each.finish()
                if tensor.is_cuda:
                    tensor.copy_(torch.as_tensor(total, device=tensor.device))
                # By a tensor on its device: by a number, a GPU would multiply by the reciprocal.
                promised.set_result(tensor.div_(tensor.new_tensor(self._comm.size)))
        return future

    def _reducer(self, index: int, flat: torch.Tensor, gradients: list[torch.Tensor]) -> Any:
        """The reducer of a bucket; another one once DDP has arranged the buckets anew, after the first step."""
        dtype = str(flat.dtype).removeprefix("torch.")
        if dtype not in TYPES:
            raise TypeError(f"fpna.ddp_hook: gradients are {dtype}; it sums {', '.join(TYPES)}")
        n, shapes = flat.numel(), tuple(tuple(gradient.shape) for gradient in gradients)
        key = n, dtype, shapes
        kept = self._reducers.get(index)
        if kept is not None and kept[0] == key:
            return kept[1]
        world = torch_world()
        if world != self._comm.size:
            raise ValueError(
                f"fpna.ddp_hook: the process group has {world} processes and the communicator {self._comm.size} ranks; "
                "start both by one mpirun, or pass the communicator of these processes"
            )
        if kept is not None:
            kept[1].free()
        reduction = Reduction(shape=(n,), dtype=np.dtype(dtype), **self._axes)
        if reduction.coding is not None:
            reduction = replace(reduction, tensors=shapes)
        reducer = plan(self._comm, reduction, name=f"bucket {index}")
        self._reducers[index] = key, reducer
        return reducer


def torch_world() -> int:
    """Processes of torch's default process group."""
    import torch.distributed

    return torch.distributed.get_world_size()


def _arrays(flat: torch.Tensor) -> tuple[Any, Any]:
    """A bucket as the one contribution of this rank, and where its sum is wanted: in place, in host memory."""
    if flat.is_cuda:
        return flat.detach()[None], None
    host = flat.detach().numpy()
    return host[np.newaxis], host
