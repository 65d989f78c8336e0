"""One network on any number of processes: exact sums of the gradients of micro-batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.exact import Limbs, range_of
from miniapps.errors import UsageError
from miniapps.programs.unequal import warn_of_kinds
from miniapps.system import kinds
from miniapps.system.world import of_torch, require_launch, world

if TYPE_CHECKING:
    import torch

WHO = "fpna.accumulate"
TYPES = ("float32", "float16", "bfloat16")  # of gradients; float32 holds them all


def accumulate(model: torch.nn.Module, micro: int, comm: Any = None, *, seed: int = 0) -> Accumulated:
    """Train `model` with the same bits on any number of processes, from one to `micro`.

    A batch is cut into `micro` micro-batches, each with one forward and backward pass on one process:

        whole = fpna.accumulate(model, micro=8)
        for x, y in loader:                             # the whole batch, on every process
            optimizer.zero_grad()
            for x_part, y_part in whole.parts(x, y):
                loss(model(x_part), y_part).backward()
            optimizer.step()

    The loss must be a mean over its micro-batch. After the loop over `parts`, every parameter's gradient is the mean
    over the batch: the exact sum of the gradients of all micro-batches, rounded once, divided by their number. Before
    each micro-batch `parts` sets torch's random state from `seed`, step and number; it restores the state at the end.

    `comm`: a communicator of mpi4py; by default MPI's world, or the processes of a launcher of torch. Equal bits need
    the same kind of machine, libraries and number of threads on all processes; `micro` is part of the problem.
    Collective. Raises UsageError on all processes for batch normalisation that is not frozen, a wrapped model,
    gradients of other types than float32, float16 and bfloat16, or weights that are not the same on all processes.
    """
    if comm is None:
        comm = of_torch()
    if comm is None:
        require_launch(WHO)
        comm = world()
    return Accumulated(model, micro, comm, seed)


class Accumulated:
    """A model whose gradients are added over micro-batches; made by `accumulate`."""

    def __init__(self, model: torch.nn.Module, micro: int, comm: Any, seed: int):
        self._comm, self._micro, self._seed, self._step = comm, micro, seed, 0
        self._parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        trouble = _unfit(model, micro, comm.size)
        own = hashlib.sha256()
        if not trouble:
            for parameter in self._parameters.values():
                own.update(_host(parameter).tobytes())
        found = comm.allgather((trouble, own.hexdigest()))
        trouble = next((text for text, _ in found if text), "")
        if not trouble and len({digest for _, digest in found}) > 1:
            trouble = "the weights are not the same on all processes: seed them alike, or load one checkpoint"
        if trouble:
            raise UsageError(f"{WHO}: {trouble}")
        apart = kinds.of_ranks(comm, kinds.here(), "run")  # whose conditions include threads
        warn_of_kinds(WHO, apart, comm.rank, "gradients of equal samples may differ")

    def parts(self, *batch: Any) -> Iterator[Any]:
        """This process's micro-batches of `batch`, tensors of equal lengths: a tensor, or a tuple of several.

        Iterate to the end, which is collective. Raises UsageError for a batch that is shorter than `micro`."""
        import torch

        lengths = {len(tensor) for tensor in batch}
        if len(lengths) != 1 or min(lengths) < self._micro:
            raise UsageError(f"{WHO}: {self._micro} micro-batches of a batch of {sorted(lengths)}: give equal lengths "
                             "of at least as many samples")  # fmt: skip
        (length,) = lengths
        cut = [length * i // self._micro for i in range(self._micro + 1)]
        rank, size = self._comm.rank, self._comm.size
        mine = range(self._micro * rank // size, self._micro * (rank + 1) // size)
        found = []
        with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_initialized() else []):
            for number in mine:
                for parameter in self._parameters.values():
                    parameter.grad = None
                key = hashlib.sha256(f"{self._seed} {self._step} {number}".encode()).digest()
                torch.manual_seed(int.from_bytes(key[:8], "little") >> 1)
                part = tuple(tensor[cut[number] : cut[number + 1]] for tensor in batch)
                yield part if len(part) > 1 else part[0]
                share = (cut[number + 1] - cut[number]) * self._micro / length
                found.append(
                    [_gradient(name, parameter, share) for name, parameter in self._parameters.items()]
                )
        self._step += 1
        for parameter, mean in zip(self._parameters.values(), self._means(found), strict=True):
            gradient = torch.from_numpy(mean).view(parameter.shape)
            parameter.grad = gradient.to(parameter.device, parameter.dtype)

    def _means(self, found: list[list[np.ndarray]]) -> Iterator[np.ndarray]:
        """The mean gradient of each parameter, float32 (n,), from the micro-batches of this process. Collective."""
        count = len(self._parameters)
        stacked = [np.stack([own[i] for own in found]) if found else np.empty((0, p.numel()), np.float32)
                   for i, p in enumerate(self._parameters.values())]  # fmt: skip
        ranges = np.array([range_of(x, self._micro) for x in stacked], np.int64).reshape(count, 4)
        limbs = [Limbs.of(agreed) for agreed in _reduced(self._comm, ranges, "max")]
        words = [of.added(x, np.zeros(len(x), np.int64), 1) for of, x in zip(limbs, stacked, strict=True)]
        sent = np.concatenate([each.reshape(-1) for each in words]) if words else np.empty(0, np.int64)
        totals, at = _reduced(self._comm, sent, "sum"), 0
        for of, own in zip(limbs, words, strict=True):
            total = totals[at : at + own.size].reshape(own.shape)
            at += own.size
            yield of.rounded(total)[0] / np.float32(self._micro)


def _unfit(model: torch.nn.Module, micro: int, size: int) -> str:
    """The reason why `model` cannot be trained on micro-batches; empty if it can."""
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm
    from torch.nn.parallel import DistributedDataParallel

    if not micro >= 1 or size > micro:
        return f"micro={micro} on {size} processes: each process needs a micro-batch or more"
    if isinstance(model, DistributedDataParallel):
        return "the model is wrapped in DistributedDataParallel, which adds gradients too: pass the module inside"
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.training:
            kind = type(module).__name__
            return (
                f"{name or 'the model'} is {kind}, whose statistics depend on the micro-batches of a process: use "
                "GroupNorm or LayerNorm, or freeze it with eval()"
            )
    for name, parameter in model.named_parameters():
        kind = str(parameter.dtype).removeprefix("torch.")
        if parameter.requires_grad and (kind not in TYPES or parameter.layout != torch.strided):
            return f"the gradient of {name} is {kind}: it adds {', '.join(TYPES)}"
    return ""


def _gradient(name: str, parameter: torch.Tensor, share: float) -> np.ndarray:
    """The gradient of a micro-batch with `share` times the average number of samples, float32 (n,)."""
    if parameter.grad is None:
        return np.zeros(parameter.numel(), np.float32)
    if parameter.grad.is_sparse:
        raise UsageError(f"{WHO}: the gradient of {name} is sparse: make the embedding with sparse=False")
    gradient = _host(parameter.grad)
    return gradient if share == 1 else gradient * np.float32(share)


def _host(tensor: torch.Tensor) -> np.ndarray:
    """A copy of a tensor in host memory, float32 (n,)."""
    array: np.ndarray = tensor.detach().float().cpu().reshape(-1).numpy()
    return array.copy()


def _reduced(comm: Any, array: np.ndarray, by: str) -> np.ndarray:
    """The element-wise "max" or "sum" of int64 arrays of all processes: no order changes it."""
    if hasattr(comm, "reduced"):  # ranks of torch
        found: np.ndarray = comm.reduced(array, by)
        return found
    from mpi4py import MPI

    total = np.empty_like(array)
    comm.Allreduce(np.ascontiguousarray(array), total, op={"max": MPI.MAX, "sum": MPI.SUM}[by])
    return total
