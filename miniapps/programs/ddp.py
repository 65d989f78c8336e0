"""A communication hook for PyTorch's DistributedDataParallel: the mean of gradients by a chosen ordering, in a chosen
accumulation, over a chosen wire."""

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
    """A hook for `model.register_comm_hook(None, fpna.ddp_hook(...))`: the mean of each bucket of gradients over the
    processes of the model's group.

    `ordering`, `accumulate` and `wire` are those of `kernels.allreduce.Reduction`; every parameter's gradient is a
    tensor of its own to the wire. `accumulate` None: "exact" where the contributions travel as they are, as by
    `direct`, else "working". `comm`: a communicator of all these processes, MPI.COMM_WORLD if not given. Gradients are
    float32, float64, float16, bfloat16, or complex of these; over a wire that loses something not float64.

    The mean is formed before it is rounded: a mean that the type has is found also where the sum is too large for it.
    Under "exact" by `direct` it is the exact sum over the number of processes, rounded once. A wire that loses
    something carries the mean. A bucket's sum is under way while the backward pass goes on; all end with the last
    bucket. The guarantee is that of the ordering: bits repeat on as many ranks. That they be the same on another number
    of ranks takes gradients that do not depend on it, one per micro-batch: see miniapps.training.

    Raises ChoiceError for what does not go together. `register_comm_hook` raises TypeError for gradients of another
    type and for sparse ones, ValueError where processes of the group are not ranks of the communicator.
    """
    require_launch("fpna.ddp_hook")
    ranks: MPI.Intracomm = MPI.COMM_WORLD if comm is None else comm
    axes = Axes(ordering, accumulate, wire, check)
    # What does not go together is told before training begins.
    made = axes.reduction(1, np.dtype(np.float32), ((1,),), 2)
    if "owners" in made.entry.needs:
        raise ChoiceError(
            f"fpna.ddp_hook: ordering {ordering!r} adds over blocks, and a bucket of gradients has none: choose "
            "direct, or train with miniapps.training"
        )
    return Hook(ranks, axes)


class Hook:
    """What `ddp_hook` makes: a function (state, bucket), which serves any number of models at once."""

    def __init__(self, comm: MPI.Intracomm, axes: Axes):
        self.__name__ = self.__qualname__ = "ddp_hook"  # which DDP logs
        self._comm, self._axes = comm, axes
        self._trainings: list[Training] = []
        begin = self._begin
        # The backward pass runs on threads of torch, with the floating-point environments that these have.
        self._call = begin if axes.ordering == "library" else guarded(begin)

    @property
    def __signature__(self) -> inspect.Signature:
        """What DDP asks for where a hook is registered: then the model is looked at."""
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
            "fpna.ddp_hook: a bucket of a model at which it was not registered: call "
            "model.register_comm_hook(None, hook)"
        )

    def _enter(self, model: Any, state: Any) -> None:
        import torch.distributed as dist

        process_group = model.process_group
        if isinstance(state, dist.ProcessGroup) and state is not process_group:
            raise ValueError(
                "fpna.ddp_hook: the state is another process group than the model's, over which DDP sends parameters "
                "and buffers: pass None, and process_group= to DistributedDataParallel"
            )
        if not (state is None or isinstance(state, dist.ProcessGroup)):
            raise TypeError(f"fpna.ddp_hook: the state is {type(state).__name__}: pass None")
        _require_gradients(model.module, self._axes.wire)
        group = group_of(self._comm, process_group)
        self._trainings = [training for training in self._trainings if training.model() is not None]
        self._trainings.append(Training(group, self._axes, model))


class Training:
    """One model of the hook: its group, what its wire has lost, and what of a backward pass is under way."""

    def __init__(self, group: Group, axes: Axes, model: Any):
        from torch.utils.weak import WeakIdKeyDictionary

        self.group, self._axes = group, axes
        self.model = weakref.ref(model)
        self.number = group.enter(self.model)
        self.parameters = WeakIdKeyDictionary({p: None for p in model.module.parameters() if p.requires_grad})
        self._feedback = Feedback()
        # In the first pass of a static graph DDP calls every bucket the first of many, and none the last.
        self._numbered = not model.static_graph

    def begin(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Begin the sum of a bucket; its mean comes with the last bucket."""
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
        # One that knows the device makes the stream that reads the mean wait for the one that writes it.
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


SPARSE = "fpna.ddp_hook: the gradient of {name} is sparse, and it sums dense ones: make the embedding with sparse=False"


def group_of(comm: MPI.Intracomm, process_group: ProcessGroup) -> Group:
    """The ranks of `comm` that are the processes of a group of torch. Collective over these.

    Raises ValueError, on all of them, where they are not ranks of one communicator.
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
            f"fpna.ddp_hook: the process group has {len(members)} processes and the communicator {comm.size} ranks, "
            f"and they are ranks {', '.join(str(r) for r, _ in told[:16])} of theirs; start all by one mpirun, or "
            "pass a communicator of all these processes"
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
    """The model at which a hook is being registered, and the state that it was given; None where none is."""
    from torch.nn.parallel import DistributedDataParallel

    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is DistributedDataParallel.register_comm_hook.__code__:
            return frame.f_locals["self"], frame.f_locals["state"]
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _described(state, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations that are text
    """The signature of a hook."""


def _require_gradients(module: torch.nn.Module, wire: str) -> None:
    """Raise TypeError for parameters whose gradients cannot be summed, naming the first."""
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
            raise TypeError(
                f"fpna.ddp_hook: gradients of {name} are {parameter.dtype}; it sums {', '.join(taken)}{over}".replace(
                    "torch.", ""
                )
            )


def _array(flat: torch.Tensor) -> np.ndarray:
    """A bucket as real numbers in host memory: where it is, if it is there."""
    import torch

    real = torch.view_as_real(flat.detach()).view(-1) if flat.is_complex() else flat.detach()
    host = real.cpu()
    if host.dtype == torch.bfloat16:
        return host.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    array: np.ndarray = host.numpy()
    return array
