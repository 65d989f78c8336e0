"""What the sums of gradients for DistributedDataParallel and FSDP2 share: the ranks of a process group, what they agree
on before training, and gradients as NumPy arrays."""

from __future__ import annotations

import atexit
import gc
import sys
import time
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from mpi4py import MPI

from kernels.wires import PLAIN
from miniapps.programs.ddp_sums import Axes, Feedback, Group, types_over
from miniapps.programs.unequal import warn_of_kinds
from miniapps.system import kinds
from miniapps.untrusted.text import tell

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

_groups: dict[tuple[Any, ...], Group] = {}  # by communicator and the processes of the group
_torchs: list[tuple[weakref.ref[Any], ProcessGroup]] = []  # of models with the hook, see `outlive`

GRADIENTS = "run"  # the guarantee whose conditions gradients have: with threads, by which torch cuts sums
PATIENCE = 2.0  # seconds that other ranks have to end, too

SPARSE = "{who}: the gradient of {name} is sparse, and the hook sums dense ones: create the embedding with sparse=False"


def entered(
    who: str, comm: MPI.Intracomm | None, process_group: ProcessGroup, axes: Axes, trouble: Exception | None
) -> Group:
    """The ranks that are the processes of a group of torch, as rank r of MPI or, without MPI between the processes, as
    ranks of torch. `comm` None: MPI's world. Collective over the processes.

    Raises `trouble`, a TypeError or ValueError of this process, and on the other processes an error of the same kind.
    Raises ValueError on all if they pass other `axes`, are not different ranks of one communicator, or if the `axes`
    need MPI, and the processes are ranks of torch.
    """
    import torch.distributed as dist

    members = dist.get_process_group_ranks(process_group)
    world = MPI.COMM_WORLD if comm is None and MPI.Is_initialized() else comm
    here = (0, 1) if world is None else (world.rank, world.size)
    own = None if trouble is None else (isinstance(trouble, TypeError), str(trouble))
    key = None if world is None else MPI._handleof(world), tuple(members)
    kind = kinds.counting(kinds.here(), GRADIENTS)
    told = _gathered(
        (here, own, axes, comm is None, key in _groups, kinds.digest(kind)), process_group, len(members)
    )
    if trouble is not None:
        raise trouble
    for number, (_, other, *_) in enumerate(told):
        if other is not None:
            raise (TypeError if other[0] else ValueError)(
                f"{other[1]} (so says process {number} of the group)"
            )
    if len({str(each[2]) for each in told}) > 1:
        raise ValueError(f"{who}: processes pass different arguments: {told[0][2]} and others")
    ranks = [rank for (rank, _), *_ in told]
    sizes = {size for (_, size), *_ in told}
    of_torch = all(each[3] for each in told) and sizes == {1} and (len(members) > 1 or world is None)
    if of_torch:
        axes.require_schedule(who)
    elif len(set(ranks)) != len(ranks) or len(sizes) != 1 or world is None:
        raise ValueError(
            f"{who}: the {len(members)} processes of the group are not ranks of one communicator: this one has "
            f"{here[1]} ranks, and they have the ranks {', '.join(map(str, ranks[:16]))}; start all by one "
            "mpirun, or pass a communicator of all these processes"
        )
    apart = kinds.among([each[5] for each in told], lambda: _gathered(kind, process_group, len(members)))
    warn_of_kinds(who, apart, dist.get_rank(process_group), "gradients of equal samples may differ")
    atexit.unregister(_end)
    atexit.register(_end)
    if not all(each[4] for each in told):  # a handle of MPI may be used again, on some ranks only
        _groups[key] = Group(_of_torch(members) if of_torch else _of_mpi(world, sorted(ranks)))
    return _groups[key]


def _gathered(own: Any, process_group: ProcessGroup, size: int) -> list[Any]:
    """The objects `own` of the `size` processes of a group of torch. Collective."""
    import torch.distributed as dist

    found: list[Any] = [None] * size
    dist.all_gather_object(found, own, group=process_group)
    return found


def outlive(model: Any) -> None:
    """Keep torch's process group of a DistributedDataParallel `model` longer than the model.

    Otherwise, after `destroy_process_group`, the model's reducer drops the group. It holds Python's lock meanwhile and
    waits for gloo's threads, and such a thread waits for the lock to drop the tensors of its last collective: the
    process never ends (pytorch issue 56297). Dropped by Python, the group waits without the lock.
    """
    _torchs[:] = [kept for kept in _torchs if kept[0]() is not None]
    _torchs.append((weakref.ref(model), model.process_group))


def _end() -> None:
    """At the end of Python: let other ranks know, so that none waits for gradients of this one; then drop the groups
    while Python still runs: gloo's threads may end the process if its group is dropped later."""
    if MPI.Is_initialized() and not MPI.Is_finalized():
        _part([group for group in _groups.values() if isinstance(group.comm, MPI.Comm)])
    _groups.clear()
    _torchs.clear()
    gc.collect()


def _part(groups: list[Group]) -> None:
    """Wait until all ranks of MPI have ended or know that this one has. If an error ended this rank, and the others
    still train after PATIENCE seconds, end them all, as MPI itself would let them wait for ever."""
    import torch.distributed as dist

    error = getattr(sys, "last_value", None)  # the exception that ends Python
    failed = error is not None or any(group.begun for group in groups)
    left, until = [group.leave() for group in groups], time.monotonic() + PATIENCE
    while not all(request.Test() for request in left):
        time.sleep(0.01)
        if time.monotonic() > until and failed:
            by = f"by {type(error).__name__}: {error}" if error is not None else "amid a backward pass"
            tell(
                f"fpna: rank {MPI.COMM_WORLD.rank} ended {by}. Other ranks wait for its gradients, so all ranks end",
                sys.stderr,
            )
            groups[0].comm.Abort(1)
        if time.monotonic() > until and dist.is_initialized():
            dist.destroy_process_group()  # a rank that waits over gloo learns of the end


def _of_torch(members: list[int]) -> Any:
    from kernels.allreduce.execution.torch_messages import of_group

    return of_group(members)


def _of_mpi(comm: Any, ranks: list[int]) -> MPI.Intracomm:
    if len(ranks) == comm.size:
        whole: MPI.Intracomm = comm.Dup()
        return whole
    group = comm.Get_group().Incl(ranks)
    part: MPI.Intracomm = comm.Create_group(group)
    group.Free()
    return part


def trouble_of(
    who: str, module: torch.nn.Module, parameters: Iterable[tuple[str, torch.nn.Parameter]], wire: str
) -> TypeError | None:
    """The error for the first of a module's `parameters` whose gradients cannot be summed; None without any."""
    import torch

    for name, part in module.named_modules():
        if isinstance(part, torch.nn.Embedding | torch.nn.EmbeddingBag) and part.sparse:
            return TypeError(SPARSE.format(who=who, name=f"{name}.weight".removeprefix(".")))
    taken = types_over(wire)
    for name, parameter in parameters:
        if not parameter.requires_grad:
            continue
        dtype = parameter.dtype.to_real() if parameter.dtype.is_complex else parameter.dtype
        if str(dtype).removeprefix("torch.") not in taken:
            over = "" if wire == PLAIN else f" over wire {wire!r}"
            own = str(parameter.dtype).removeprefix("torch.")
            return TypeError(f"{who}: gradients of {name} are {own}; it sums {', '.join(taken)}{over}")
    return None


def array_of(flat: torch.Tensor) -> np.ndarray:
    """A flat tensor as real numbers in host memory; without a copy if it is there already."""
    import torch

    real = torch.view_as_real(flat.detach()).view(-1) if flat.is_complex() else flat.detach()
    host = real.cpu()
    if host.dtype == torch.bfloat16:
        return host.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    array: np.ndarray = host.numpy()
    return array


def put(array: np.ndarray, flat: torch.Tensor) -> None:
    """Write the real numbers of an array (n,) into a flat tensor of the same type."""
    import torch

    words = torch.from_numpy(array.view(np.int16) if array.dtype.itemsize == 2 else array)
    real = torch.view_as_real(flat).view(-1) if flat.is_complex() else flat
    real.copy_(words.view(real.dtype))


def saved(feedback: Feedback, group: Group) -> dict[str, dict[str, torch.Tensor]]:
    """The errors by the name of the parameter, for a checkpoint of this process. Collective."""
    import torch

    state = feedback.state(group.comm)
    return {
        name: {"own": torch.from_numpy(own), "total": torch.from_numpy(total)}
        for name, (own, total) in state.items()
    }


def restore(
    who: str,
    feedback: Feedback,
    group: Group,
    sizes: Mapping[str, int],
    state: Mapping[str, Mapping[str, torch.Tensor]],
) -> None:
    """Continue from a state of `saved`, of parameters of these `sizes`. Collective. Raises ValueError on all ranks if
    the state of one does not fit."""
    import torch

    trouble = ""
    for name, errors in state.items():
        for part in ("own", "total"):
            tensor = errors.get(part)
            if name not in sizes:
                trouble = (
                    f"the state has errors of {name}, which is no parameter of the model that has gradients"
                )
            elif tensor is None or tensor.dtype != torch.float32 or tuple(tensor.shape) != (sizes[name],):
                trouble = f"the state needs {part!r} errors of {name}, float32 ({sizes[name]},)"
    kept = None if trouble else sorted(state)
    for rank, (other, names) in enumerate(group.comm.allgather((trouble, kept))):
        if other:
            raise ValueError(
                f"{who}: rank {rank}: {other}: load the state that this rank saved for this model"
            )
        if names != kept and not trouble:
            raise ValueError(
                f"{who}: rank {rank} has the errors of other parameters: load states of one step"
            )
    feedback.restore(
        {name: (errors["own"].numpy(), errors["total"].numpy()) for name, errors in state.items()}
    )
