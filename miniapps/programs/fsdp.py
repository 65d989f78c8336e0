"""A reduce-scatter for PyTorch's FSDP2 (`fully_shard`): the mean of gradients with a chosen ordering, accumulation and
wire, with the bits that the hook of DistributedDataParallel gives."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from kernels.allreduce.coding import coding
from kernels.environment import guarded
from kernels.wires import PLAIN
from miniapps.programs.ddp_groups import array_of, entered, put, restore, saved, trouble_of
from miniapps.programs.ddp_sums import Axes, Feedback, Group, types_over
from miniapps.system.world import require_launch

if TYPE_CHECKING:
    import torch

WHO = "fpna.fsdp_reduce_scatter"


def fsdp_reduce_scatter(
    model: torch.nn.Module,
    comm: MPI.Intracomm | None = None,
    *,
    ordering: str = "direct",
    accumulate: str | None = None,
    wire: str = PLAIN,
    check: bool = False,
) -> Scattered:
    """Let the modules of `model` that `fully_shard` sharded take the mean of gradients as `fpna.ddp_hook` does.

    The other arguments are those of `ddp_hook`. Under orderings that add all elements alike, such as `direct`, a rank
    gets its part of the mean that the hook gives for the same gradients, bit for bit; orderings that add by chunks,
    such as `ring`, begin a chunk at other elements. The mean is formed before it is rounded to the type that FSDP2
    reduces in (`reduce_dtype`). A lossy wire encodes each parameter's whole gradient as one tensor, and every rank
    receives the whole mean. torch calls no reduce-scatter on one process: there gradients stay as they are.

    Call it after `fully_shard`, before the first backward pass. Collective over the processes of the mesh. It sets
    the gradient divide factor of the modules to 1, as the mean is formed here. Raises ChoiceError for choices that do
    not go together; on all processes TypeError for gradients of other types, ValueError for a model that is not
    sharded, is sharded over two dimensions or, with a lossy wire, along another dimension than the first, that has a
    gradient divide factor, or whose processes are not ranks of the communicator.
    """
    require_launch(WHO, torch=True)
    axes = Axes(ordering, accumulate, wire, check, scatter=True)
    axes.require_fitting(WHO)
    return Scattered(model, comm, axes)


class Scattered:
    """The reduce-scatters of a model, made by `fsdp_reduce_scatter`. It saves the errors of wires as the hook does."""

    def __init__(self, model: torch.nn.Module, comm: MPI.Intracomm | None, axes: Axes):
        import torch.distributed as dist

        found = list(_sharded(model))
        trouble = _trouble(model, [group for _, group in found], axes)
        meshes = {id(group.mesh_info.shard_process_group): group.mesh_info.shard_process_group for _, group in found
                  if trouble is None}  # fmt: skip
        if trouble is None and len(meshes) > 1:
            trouble = ValueError(
                f"{WHO}: the modules are sharded over {len(meshes)} groups of processes: use one mesh"
            )
        process_group = next(iter(meshes.values())) if len(meshes) == 1 else dist.group.WORLD
        if process_group is None:
            raise trouble or ValueError(f"{WHO}: torch has no process group")
        self._group = entered(WHO, comm, process_group, axes, trouble)
        self._feedback = Feedback()
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        self._sizes: dict[str, int] = {}
        for module, group in found:
            own = [(names[id(p.sharded_param)], tuple(p._orig_size)) for p in group.fsdp_params]
            self._sizes |= {name: math.prod(shape) for name, shape in own}
            module.set_custom_reduce_scatter(Scatter(self._group, axes, group, own, self._feedback))
            module.set_gradient_divide_factor(1.0)

    def state_dict(self) -> dict[str, dict[str, torch.Tensor]]:
        """The errors that a wire with `feedback=on` keeps, by the name of the parameter. Collective."""
        return saved(self._feedback, self._group)

    def load_state_dict(self, state: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Continue from the `state_dict` of this process. Collective. Raises ValueError if a state does not fit."""
        restore(WHO, self._feedback, self._group, self._sizes, state)


class Scatter:
    """The reduce-scatter of one module, for FSDP2: `parameters`, the names and shapes of those that it shards."""

    def __init__(
        self,
        group: Group,
        axes: Axes,
        sharded: Any,
        parameters: Sequence[tuple[str, tuple[int, ...]]],
        feedback: Feedback,
    ):
        self._group, self._axes, self._feedback = group, axes, feedback
        self._sharded, self._parameters = weakref.ref(sharded), parameters
        self.number = group.enter(weakref.ref(self))
        self._call = self._mean if axes.ordering == "library" else guarded(self._mean)

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Memory for the gradients and for the part of their mean."""
        import torch

        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: Any,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """Write this rank's part of the mean of `input_tensor` (size * n,) into `output_tensor` (n,)."""
        factor = self._sharded().gradient_divide_factor  # type: ignore[union-attr]  # FSDP2 calls it
        if factor != 1.0:
            raise ValueError(
                f"{WHO}: the gradient divide factor is {factor}: leave it at 1, and scale the loss"
            )
        put(self._call(array_of(input_tensor), input_tensor.is_complex()), output_tensor)

    def _mean(self, padded: np.ndarray, is_complex: bool) -> np.ndarray:
        group = self._group
        if coding(self._axes.wire) is None:
            return self._of_ranks(padded, None, None)
        shapes = [(*shape, 2) if is_complex else shape for _, shape in self._parameters]
        rows, size = padded.reshape(group.comm.size, -1), group.comm.size
        widths = [-(-shape[0] // size) * math.prod(shape[1:]) for shape in shapes]
        if sum(widths) != rows.shape[1]:
            raise ValueError(
                f"{WHO}: some parameters of the module have no gradient, and wire {self._axes.wire!r} needs all: use "
                "them in every step, or call set_reduce_scatter_unused_params(True)"
            )
        ends = np.cumsum(widths)[:-1]
        whole = [part.reshape(-1)[: math.prod(shape)]
                 for part, shape in zip(np.split(rows, ends, 1), shapes, strict=True)]  # fmt: skip
        mean = self._of_ranks(np.concatenate(whole), tuple(shapes), [part.size for part in whole])
        parts, start = [], 0
        for width, part in zip(widths, whole, strict=True):
            own = np.zeros(width, mean.dtype)
            first = min(group.comm.rank * width, part.size)
            end = min(first + width, part.size)
            own[: end - first] = mean[start + first : start + end]
            start += part.size
            parts.append(own)
        return np.concatenate(parts)

    def _of_ranks(
        self, gradients: np.ndarray, shapes: tuple[tuple[int, ...], ...] | None, sizes: Sequence[int] | None
    ) -> np.ndarray:
        """The mean over the ranks, whole over a lossy wire, else this rank's part. Collective."""
        group = self._group
        mean = group.take(self, (self._axes, len(gradients), gradients.dtype.name, shapes, group.comm.size))
        lost = None
        if mean.feedback and sizes is not None:
            lost = self._feedback.of([name for name, _ in self._parameters], sizes, group.comm)
            lost.lend(mean)
        mean.start(gradients)
        found = mean.finish()
        if lost is not None:
            lost.accept()
        mean.busy = False
        return found


def _sharded(model: torch.nn.Module) -> Iterator[tuple[Any, Any]]:
    """The modules that FSDP2 shards, each with a group of its parameters."""
    from torch.distributed.fsdp import FSDPModule

    for module in model.modules():
        if isinstance(module, FSDPModule):
            for group in module._get_fsdp_state()._fsdp_param_groups:
                yield module, group


def _trouble(model: torch.nn.Module, groups: Sequence[Any], axes: Axes) -> Exception | None:
    """The reason why the gradients of these groups cannot be summed; None without any."""
    from torch.distributed.fsdp._fully_shard._fsdp_common import DDPMeshInfo, FSDPMeshInfo

    if not groups:
        return ValueError(f"{WHO}: no module of the model is sharded: call fully_shard(model) before")
    trouble: Exception | None = trouble_of(WHO, model, model.named_parameters(), axes.wire)
    taken = types_over(axes.wire)
    if any(group._num_param_groups > 1 for group in groups):
        trouble = ValueError(
            f"{WHO}: parameters of one module are sharded over different meshes: use one mesh"
        )
    for group in groups:
        kind = str(group.mp_policy.reduce_dtype or "").removeprefix("torch.")
        if isinstance(group.mesh_info, DDPMeshInfo) or not isinstance(group.mesh_info, FSDPMeshInfo):
            trouble = ValueError(
                f"{WHO}: the model is also replicated, and torch adds the gradients of replicas in its own order: "
                "shard it over a mesh of one dimension"
            )
        elif group.gradient_divide_factor not in (None, 1.0):
            factor = group.gradient_divide_factor
            trouble = ValueError(
                f"{WHO}: the gradient divide factor is {factor}: leave it out, and scale the loss"
            )
        elif kind and kind not in taken:
            trouble = TypeError(f"{WHO}: FSDP2 reduces in {kind}; it sums {', '.join(taken)}")
        elif coding(axes.wire) and any(p.fsdp_placement.dim for p in group.fsdp_params):
            trouble = ValueError(
                f"{WHO}: a wire needs parameters that are sharded along their first dimension"
            )
    return trouble
