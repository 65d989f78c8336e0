"""A communication hook for PyTorch's DistributedDataParallel: the mean of gradients with a chosen ordering,
accumulation and wire."""

from __future__ import annotations

import inspect
import sys
import weakref
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from mpi4py import MPI

from kernels.allreduce.coding import coding
from kernels.environment import guarded
from kernels.guarantees import ChoiceError
from kernels.wires import PLAIN
from miniapps.programs.ddp_sums import TYPES, Axes, Begun, Feedback, Group
from miniapps.system.world import require_launch

if TYPE_CHECKING:
    import torch
    from torch.distributed import GradBucket, ProcessGroup

_groups: dict[tuple[Any, ...], Group] = {}  # by communicator and the processes of the group


def ddp_hook(
    comm: MPI.Intracomm | None = None,
    *,
    ordering: str = "direct",
    accumulate: str | None = None,
    wire: str = PLAIN,
    check: bool = False,
) -> Hook:
    """A hook for `model.register_comm_hook(None, fpna.ddp_hook(...))`. It computes the mean of each bucket of gradients
    over the processes of the model's group.

    `ordering`, `accumulate` and `wire` as for `kernels.allreduce.Reduction`; the wire encodes each parameter's gradient
    as one tensor. `accumulate` None: "exact" if the ordering sends contributions unchanged, as `direct` does, else
    "working". `comm`: a communicator of all these processes, by default MPI.COMM_WORLD. Gradients are float32, float64,
    float16, bfloat16, or complex of these; over a lossy wire not float64.

    The hook divides before it rounds, so a representable mean is right even if the sum overflows. "exact" with `direct`
    gives the exact sum divided by the number of processes, rounded once. A lossy wire carries the mean. Sums of buckets
    overlap the backward pass and end with its last bucket. The guarantee is that of the ordering: bits repeat on the
    same number of ranks. For the same bits on other numbers of ranks, gradients must not depend on it: one per
    micro-batch, as in miniapps.training.

    Raises ChoiceError for choices that do not go together. `register_comm_hook` raises TypeError for sparse gradients
    and for other types, ValueError if processes of the group are not ranks of the communicator.
    """
    require_launch("fpna.ddp_hook")
    ranks: MPI.Intracomm = MPI.COMM_WORLD if comm is None else comm
    axes = Axes(ordering, accumulate, wire, check)
    # Raises ChoiceError before training begins.
    made = axes.reduction(1, np.dtype(np.float32), ((1,),), 2)
    if "owners" in made.entry.needs:
        raise ChoiceError(
            f"fpna.ddp_hook: ordering {ordering!r} adds over blocks, and a bucket of gradients has no blocks: choose "
            "direct, or train with miniapps.training"
        )
    return Hook(ranks, axes)


class Hook:
    """The hook from `ddp_hook`: a function (state, bucket) for any number of models at once."""

    def __init__(self, comm: MPI.Intracomm, axes: Axes):
        self.__name__ = self.__qualname__ = "ddp_hook"  # DDP logs it
        self._comm, self._axes = comm, axes
        self._trainings: list[Training] = []
        begin = self._begin
        # The backward pass runs on threads of torch, with their floating-point environments.
        self._call = begin if axes.ordering == "library" else guarded(begin)

    @property
    def __signature__(self) -> inspect.Signature:
        """DDP reads it when a hook is registered; the hook then enters the model."""
        registering = _registering()
        if registering is not None:
            self._enter(*registering)
        return inspect.signature(_described)

    def __call__(self, state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        return self._call(bucket)

    def _begin(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        first = bucket.parameters()[0]
        for training in self._trainings:
            if first in training.parameters:
                return training.begin(bucket)
        raise ValueError(
            "fpna.ddp_hook: a bucket of a model without this hook: call model.register_comm_hook(None, hook)"
        )

    def _enter(self, model: Any, state: Any) -> None:
        import torch.distributed as dist

        process_group = model.process_group
        if isinstance(state, dist.ProcessGroup) and state is not process_group:
            raise ValueError(
                "fpna.ddp_hook: the state is not the process group of the model, over which DDP sends parameters and "
                "buffers: pass None as the state, and process_group= to DistributedDataParallel"
            )
        if not (state is None or isinstance(state, dist.ProcessGroup)):
            raise TypeError(f"fpna.ddp_hook: the state is {type(state).__name__}: pass None")
        _require_gradients(model.module, self._axes.wire)
        group = group_of(self._comm, process_group)
        self._trainings = [training for training in self._trainings if training.model() is not None]
        self._trainings.append(Training(group, self._axes, model))


class Training:
    """One model of the hook: its group, the losses of its wire, and the buckets of the current backward pass."""

    def __init__(self, group: Group, axes: Axes, model: Any):
        from torch.utils.weak import WeakIdKeyDictionary

        self.group, self._axes = group, axes
        self.model = weakref.ref(model)
        self.number = group.enter(self.model)
        self.parameters = WeakIdKeyDictionary({p: None for p in model.module.parameters() if p.requires_grad})
        self._feedback = Feedback()
        # In the first pass of a static graph DDP numbers every bucket 0 and marks none as the last.
        self._numbered = not model.static_graph

    def begin(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Begin the sum of a bucket; returns the future of its mean, which ends with the last bucket."""
        import torch

        group = self.group
        if bucket.index() == 0:
            group.settle(self)
        else:
            self._numbered = True
        flat = bucket.buffer()
        if flat.layout != torch.strided:
            raise TypeError(SPARSE.format(name="a parameter"))
        host = _array(flat)
        shapes = tuple(tuple(gradient.shape) for gradient in bucket.gradients())
        if flat.is_complex():
            shapes = tuple((*shape, 2) for shape in shapes)
        key = self._axes, len(host), host.dtype.name, shapes if coding(self._axes.wire) else None
        mean = group.take(self, key)
        lost = self._feedback.of(bucket.parameters(), group.comm) if mean.feedback else None
        if lost is not None:
            lost.lend(mean)
        for begun in group.begun:
            begun.mean.reducer.progress()
        # With the device, the future makes the stream that reads the mean wait for the stream that writes it.
        future = torch.futures.Future[torch.Tensor](devices=[flat.device] if flat.is_cuda else None)
        group.begun.append(Begun(self, key, mean, (flat, lost, future)))
        mean.start(host)
        if bucket.is_last() or not self._numbered:
            self._finish()
        return future

    def _finish(self) -> None:
        import torch

        group = self.group
        for begun in [begun for begun in group.begun if begun.training is self]:
            flat, lost, future = begun.done
            total = begun.mean.finish()
            group.begun.remove(begun)
            if lost is not None:
                lost.accept()
            words = torch.from_numpy(total.view(np.int16) if total.dtype.itemsize == 2 else total)
            real = torch.view_as_real(flat).view(-1) if flat.is_complex() else flat
            real.copy_(words.view(real.dtype))
            begun.mean.busy = False
            future.set_result(flat)


SPARSE = (
    "fpna.ddp_hook: the gradient of {name} is sparse, and the hook sums dense ones: create the embedding with "
    "sparse=False"
)


def group_of(comm: MPI.Intracomm, process_group: ProcessGroup) -> Group:
    """The ranks of `comm` that are the processes of a group of torch. Collective over these processes.

    Raises ValueError on all of them if they are not different ranks of one communicator.
    """
    import torch.distributed as dist

    members = dist.get_process_group_ranks(process_group)
    key = MPI._handleof(comm), tuple(members)
    if key in _groups:
        return _groups[key]
    told: list[Any] = [None] * len(members)
    dist.all_gather_object(told, (comm.rank, comm.size), group=process_group)
    ranks = sorted(rank for rank, _ in told)
    if len(set(ranks)) != len(ranks) or len({size for _, size in told}) != 1:
        raise ValueError(
            f"fpna.ddp_hook: the {len(members)} processes of the group are not ranks of one communicator: this one has "
            f"{comm.size} ranks, and they have the ranks {', '.join(str(r) for r, _ in told[:16])}; start all by one "
            "mpirun, or pass a communicator of all these processes"
        )
    if len(ranks) == comm.size:
        made = comm.Dup()
    else:
        part = comm.Get_group().Incl(ranks)
        made = comm.Create_group(part)
        part.Free()
    _groups[key] = Group(made)
    return _groups[key]


def _registering() -> tuple[Any, Any] | None:
    """(model, state) of the registration of a hook in progress; None without one."""
    from torch.nn.parallel import DistributedDataParallel

    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is DistributedDataParallel.register_comm_hook.__code__:
            return frame.f_locals["self"], frame.f_locals["state"]
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _described(state, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations that are text
    """A function with the signature of a hook."""


def _require_gradients(module: torch.nn.Module, wire: str) -> None:
    """Raise TypeError for the first parameter whose gradients cannot be summed."""
    import torch

    for name, part in module.named_modules():
        if isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag) and part.sparse:
            raise TypeError(SPARSE.format(name=f"{name}.weight".removeprefix(".")))
    taken = [name for name in TYPES if name != "float64" or coding(wire) is None]
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        dtype = parameter.dtype.to_real() if parameter.dtype.is_complex else parameter.dtype
        kind = str(dtype).removeprefix("torch.")
        if kind not in taken:
            over = "" if wire == PLAIN else f" over wire {wire!r}"
            kinds = f"{', '.join(taken)}{over}"
            own = str(parameter.dtype).removeprefix("torch.")
            raise TypeError(f"fpna.ddp_hook: gradients of {name} are {own}; the hook sums {kinds}")


def _array(flat: torch.Tensor) -> np.ndarray:
    """A bucket as real numbers in host memory; without a copy if it is there already."""
    import torch

    real = torch.view_as_real(flat.detach()).view(-1) if flat.is_complex() else flat.detach()
    host = real.cpu()
    if host.dtype == torch.bfloat16:
        return host.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    array: np.ndarray = host.numpy()
    return array
