"""A communication hook for PyTorch's DistributedDataParallel: the mean of gradients with a chosen ordering,
accumulation and wire."""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from kernels.allreduce.coding import coding
from kernels.environment import guarded
from kernels.wires import PLAIN
from miniapps.programs.ddp_groups import (
    SPARSE,
    array_of,
    entered,
    outlive,
    put,
    restore,
    saved,
    trouble_of,
)
from miniapps.programs.ddp_sums import Axes, Begun, Feedback, Group
from miniapps.system.world import require_launch

if TYPE_CHECKING:
    import torch
    from torch.distributed import GradBucket
    from torch.nn.parallel import DistributedDataParallel

WHO = "fpna.ddp_hook"


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

    In a `join()` context the mean is over all processes, those without inputs with zeros, or over those with inputs.

    The hook divides before it rounds, so a representable mean is right even if the sum overflows. "exact" with `direct`
    gives the exact sum divided by the number of processes, rounded once. A lossy wire carries the mean. Sums of buckets
    overlap the backward pass and end with its last bucket. The guarantee is that of the ordering: bits repeat on the
    same number of ranks. For the same bits on other numbers of ranks, gradients must not depend on it: one per
    micro-batch, as in miniapps.training.

    Raises ChoiceError for choices that do not go together. `register_comm_hook` raises TypeError for sparse gradients
    and for other types, ValueError if processes of the group are not ranks of the communicator.
    """
    require_launch(WHO, torch=True)
    axes = Axes(ordering, accumulate, wire, check)
    axes.require_fitting(WHO)
    return Hook(comm, axes)


class Hook:
    """The hook from `ddp_hook`: a function (state, bucket) for any number of models at once."""

    def __init__(self, comm: MPI.Intracomm | None, axes: Axes):
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

    def __reduce__(self) -> tuple[type[Hook], tuple[Any, ...]]:
        """A copy in another process has the same choices, and no model."""
        return Hook, (self._comm, self._axes)

    def state_dict(self, model: DistributedDataParallel) -> dict[str, dict[str, torch.Tensor]]:
        """The errors that a wire with `feedback=on` keeps for `model`, by the name of the parameter: float32 (n,) each,
        `own` of this process's gradients, `total` of their mean. Empty without feedback or before the first step.

        Every process saves its own state, between steps, for `load_state_dict`. Collective over the processes of the
        model. Raises ValueError for a model without this hook."""
        training = self._training_of(model)
        return saved(training.feedback, training.group)

    def load_state_dict(
        self, model: DistributedDataParallel, state: Mapping[str, Mapping[str, torch.Tensor]]
    ) -> None:
        """Continue from the `state_dict` of this process: the training has the bits of one that was not interrupted.

        Collective over the processes of the model, which are as many as before. Raises ValueError on all of them if one
        state does not fit the model, and for a model without this hook."""
        training = self._training_of(model)
        sizes = {name: p.numel() for p, name in training.names.items()}
        restore(WHO, training.feedback, training.group, sizes, state)

    def _training_of(self, model: DistributedDataParallel) -> Training:
        for training in self._trainings:
            if training.model() is model:
                return training
        raise ValueError(
            f"{WHO}: the model does not have this hook: call model.register_comm_hook(None, hook)"
        )

    def _begin(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        first = bucket.parameters()[0]
        for training in self._trainings:
            if first in training.names:
                return training.begin(bucket)
        raise ValueError(
            "fpna.ddp_hook: a bucket of a model without this hook: call model.register_comm_hook(None, hook)"
        )

    def _enter(self, model: Any, state: Any) -> None:
        import torch.distributed as dist

        trouble: Exception | None = trouble_of(
            WHO, model.module, model.module.named_parameters(), self._axes.wire
        )
        if isinstance(state, dist.ProcessGroup) and state is not model.process_group:
            trouble = ValueError(
                f"{WHO}: the state is not the process group of the model, over which DDP sends parameters and "
                "buffers: pass None as the state, and process_group= to DistributedDataParallel"
            )
        elif not (state is None or isinstance(state, dist.ProcessGroup)):
            trouble = TypeError(f"{WHO}: the state is {type(state).__name__}: pass None")
        group = entered(WHO, self._comm, model.process_group, self._axes, trouble)
        outlive(model)
        self._trainings = [training for training in self._trainings if training.model() is not None]
        self._trainings.append(Training(group, self._axes, model))


class Training:
    """One model of the hook: its group, the losses of its wire, and the buckets of the current backward pass."""

    def __init__(self, group: Group, axes: Axes, model: Any):
        from torch.utils.weak import WeakIdKeyDictionary

        self.group, self._axes = group, axes
        self.model = weakref.ref(model)
        self.number = group.enter(self.model)
        named = [(name, p) for name, p in model.module.named_parameters() if p.requires_grad]
        self.names = WeakIdKeyDictionary({p: name for name, p in named})
        self.feedback = Feedback()
        # In the first pass of a static graph DDP numbers every bucket 0 and marks none as the last: count parameters.
        self._count = sum(1 for name, _ in named if name not in model.parameters_to_ignore)
        self._left: int | None = None
        self._over = group.comm.size

    def begin(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Begin the sum of a bucket; returns the future of its mean, which ends with the last bucket."""
        import torch

        group, flat, parameters = self.group, bucket.buffer(), bucket.parameters()
        if flat.layout != torch.strided:
            raise TypeError(SPARSE.format(who=WHO, name="a parameter"))
        if self._left is None:
            model = self.model()
            self._left = self._count if model is not None and model.static_graph else 0
        counted, self._left = self._left, self._count if self._left else 0  # should an error end this pass
        if bucket.index() == 0 and counted in (0, self._count):
            group.settle(self)
            self._over = self._counted()
        host = array_of(flat)
        shapes = tuple(tuple(gradient.shape) for gradient in bucket.gradients())
        if flat.is_complex():
            shapes = tuple((*shape, 2) for shape in shapes)
        key = self._axes, len(host), host.dtype.name, shapes if coding(self._axes.wire) else None, self._over
        mean = group.take(self, key)
        lost = None
        if mean.feedback:
            names, sizes = [self.names[p] for p in parameters], [p.numel() for p in parameters]
            lost = self.feedback.of(names, sizes, group.comm)
            lost.lend(mean)
        for begun in group.begun:
            begun.mean.reducer.progress()
        # With the device, the future makes the stream that reads the mean wait for the stream that writes it.
        future = torch.futures.Future[torch.Tensor](devices=[flat.device] if flat.is_cuda else None)
        group.begun.append(Begun(self, key, mean, (flat, lost, future)))
        mean.start(host)
        if counted:
            self._left = counted - len(parameters)
        if not self._left if counted else bucket.is_last():
            self._finish()
        return future

    def _counted(self) -> int:
        """The number of processes over which the mean of this backward pass is taken: all, or in a join() context with
        divide_by_initial_world_size=False those that still have inputs. Collective in such a context."""
        model, comm = self.model(), self.group.comm
        if model is None or not model._join_config.enable or model._divide_by_initial_world_size:
            return int(comm.size)
        return int(comm.allreduce(0 if _calling(type(model)._match_all_reduce_for_bwd_pass) else 1))

    def _finish(self) -> None:
        group = self.group
        for begun in [begun for begun in group.begun if begun.training is self]:
            flat, lost, future = begun.done
            total = begun.mean.finish()
            group.begun.remove(begun)
            if lost is not None:
                lost.accept()
            put(total, flat)
            begun.mean.busy = False
            future.set_result(flat)


def _registering() -> tuple[Any, Any] | None:
    """(model, state) of the registration of a hook in progress; None without one."""
    from torch.nn.parallel import DistributedDataParallel

    called = _calling(DistributedDataParallel.register_comm_hook)
    return None if called is None else (called["self"], called["state"])


def _calling(function: Any) -> dict[str, Any] | None:
    """The local variables of the innermost call of `function` in progress on this thread; None without one."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is function.__code__:
            return frame.f_locals
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _described(state, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations that are text
    """A function with the signature of a hook."""
