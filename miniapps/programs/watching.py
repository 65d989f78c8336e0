"""Record a model of PyTorch: the inputs and outputs of modules, gradients and updates, in the order of computation."""

from __future__ import annotations

import fnmatch
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from miniapps.errors import UsageError
from miniapps.programs.buffers import numbers
from miniapps.system.device import host
from miniapps.trace.records import (
    BEFORE,
    DATA,
    GIVEN,
    GRADIENT,
    LOSS,
    OUTPUT,
    OUTPUT_GRADIENT,
    RANDOM,
    UPDATE,
    WATCHED,
    WEIGHTS,
)

if TYPE_CHECKING:
    import torch

    from miniapps.programs.recording import Recording

RANGES = 16  # a weight is recorded in about so many parts
LEAST = 4096  # elements of a part, at least
MOST = 2**31 - 1  # the largest `sample`, as traces hold it


def watch(
    model: torch.nn.Module,
    recording: Recording,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    every: int = 10,
    modules: str | Sequence[str] = "*",
    sample: int = 1,
) -> Watched:
    """Record the computation of `model` into `recording`, until the recording ends or `close` is called. The training
    loop needs no other change.

    Records are in the order of computation: random state and inputs of the model; for each module its outputs, and its
    inputs if code between modules made them; the loss; gradients of outputs and parameters. With `optimizer` also the
    gradients that it uses, and the weights and buffers after its step. `every`: record the first step and the multiples
    of this number. `modules`: patterns of names of modules (`"layers.*"`) whose inputs and outputs are recorded.
    `sample`: take the sizes of each tensor, from which the distance of two runs follows, of one block of 64 numbers
    among so many; hashes are of all numbers, so `equal` and `differs` hold for the whole tensor.
    `fpna divergence` names the first operation that differs between two runs.

    Collective over the ranks of the recording. For DistributedDataParallel it records the inner module; for a compiled
    module only its inputs and outputs. Raises UsageError on all ranks if they have different modules, or if `every` or
    `sample` is no whole number of 1 or more.
    """
    for option, value, least in (("every", every, "every step"), ("sample", sample, "all numbers")):
        if not isinstance(value, int) or value < 1:
            raise UsageError(f"fpna.watch: {option}={value!r}: choose 1 ({least}) or a larger whole number")
    if sample > MOST:
        raise UsageError(f"fpna.watch: sample={sample}: choose at most {MOST}")
    patterns = (modules,) if isinstance(modules, str) else tuple(modules)
    watched = Watched(model, recording, optimizer, every, patterns, sample)
    recording.until_end(watched.close)
    return watched


class Watched:
    """A model that is being recorded, from `watch`."""

    def __init__(
        self,
        model: torch.nn.Module,
        recording: Recording,
        optimizer: torch.optim.Optimizer | None,
        every: int,
        patterns: tuple[str, ...],
        sample: int,
    ):
        self._model, self._recording, self._every, self._patterns = inner(model), recording, every, patterns
        self._optimizer, self._sample = optimizer, sample
        self._names: dict[int, str] = {}
        self._attached_to: list[int] = []
        self._seen: dict[int, tuple[weakref.ref[Any], int]] = {}  # tensors recorded in this step
        self._handles: list[Any] = []
        self._first: int | None = None  # the step of the first forward pass
        self._last = 0  # the last step with records
        self._require_alike()
        sharded = any(map(is_distributed, self._model.parameters()))
        rows = {prefix: f"fingerprints:{prefix}*" for prefix in WATCHED}
        recording.states("every", every, ["fingerprints:model.*"])
        recording.states("modules", list(patterns), [rows[each] for each in (GIVEN, OUTPUT, OUTPUT_GRADIENT)])
        recording.states("optimizer", optimizer is not None, [rows[UPDATE], f"fingerprints:{WEIGHTS}*"])
        recording.states("sharded", sharded, [rows[GRADIENT]])
        recording.states("sample", sample, [])
        self._attach()
        self._weights(WEIGHTS)

    def close(self) -> None:
        """Stop recording and remove all hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _require_alike(self) -> None:
        own = [f"module {name} ({type(module).__name__})" for name, module in self._watched()]
        own += [f"parameter {name} {tuple(p.shape)}" for name, p in self._model.named_parameters()]
        ranks = self._recording.gathered(own)
        for rank, other in enumerate(ranks):
            if other != ranks[0]:
                pairs = zip([*ranks[0], "nothing"], [*other, "nothing"], strict=False)
                first, there = next(pair for pair in pairs if pair[0] != pair[1])
                raise UsageError(
                    f"fpna.watch: ranks have different modules: {first} on rank 0, {there} on rank {rank}; "
                    "build the same model on all ranks"
                )

    def _watched(self) -> Iterator[tuple[str, torch.nn.Module]]:
        """(name, module) for each module whose inputs and outputs are recorded."""
        compiled: list[str] = []
        for name, module in self._model.named_modules():
            if any(name.startswith(f"{outer}.") for outer in compiled):
                continue
            if name and is_compiled(module):
                compiled.append(name)
            if name and any(fnmatch.fnmatchcase(name, pattern) for pattern in self._patterns):
                yield name, module

    def _structure(self) -> list[int]:
        """The identities of modules and trained parameters, in their order."""
        trained = (p for p in self._model.parameters() if p.requires_grad)
        return [*map(id, self._model.modules()), *map(id, trained)]

    def _attach(self) -> None:
        model = self._model
        self._attached_to = self._structure()
        self._names = {id(p): name for name, p in model.named_parameters()}
        self._handles.append(model.register_forward_pre_hook(self._enter, with_kwargs=True))
        for name, module in self._watched():
            label = f"{name} ({type(module).__name__})"
            self._handles.append(module.register_forward_pre_hook(self._before(label), with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._after(label)))
        label = f"model ({type(model).__name__})"
        self._handles.append(model.register_forward_hook(self._after(label)))
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and not is_distributed(
                parameter
            ):  # a DTensor's gradients are sums over ranks
                hook = self._accumulated(name)
                self._handles.append(parameter.register_post_accumulate_grad_hook(hook))
        self._handles.append(Backward(self._loss))
        if self._optimizer is not None:
            self._handles.append(self._optimizer.register_step_pre_hook(self._update))
            self._handles.append(self._optimizer.register_step_post_hook(self._updated))

    def _enter(self, module: Any, args: Any, kwargs: Any) -> None:
        """Hook at the start of a forward pass of the model."""
        step = self._recording.at_step
        if self._first is None:
            self._first = step
            self._recording.describe("torch", settings())
        if self._attached_to != self._structure():  # modules came or went since the last forward pass
            self.close()
            self._attach()
        if not self._recorded() or in_backward():
            return
        if step > self._last + 1 and step != self._first:  # after steps without records
            self._weights(BEFORE)
        self._last = step
        self._seen.clear()
        self._random()
        for path, tensor in tensors({"": args, **kwargs}):
            self._record(f"{DATA}{path or '0'}", tensor)

    def _before(self, label: str) -> Any:
        def hook(module: Any, args: Any, kwargs: Any) -> None:
            if not self._recorded() or in_backward():
                return
            for path, tensor in tensors({"": args, **kwargs}):
                self._record(f"{GIVEN}{label}{path}", tensor)

        return hook

    def _after(self, label: str) -> Any:
        def hook(module: Any, args: Any, output: Any) -> None:
            if not self._recorded() or in_backward():
                return
            for path, tensor in tensors(output):
                if self._record(f"{OUTPUT}{label}{path}", tensor) and tensor.requires_grad:
                    tensor.register_hook(self._slope(f"{OUTPUT_GRADIENT}{label}{path}"))

        return hook

    def _slope(self, name: str) -> Any:
        def hook(gradient: torch.Tensor) -> None:
            if self._handles:
                self._local(name, gradient)

        return hook

    def _accumulated(self, name: str) -> Any:
        def hook(parameter: torch.Tensor) -> None:
            if self._recorded() and parameter.grad is not None:
                self._local(f"{GRADIENT}{name}", parameter.grad)

        return hook

    def _loss(self, roots: Sequence[torch.Tensor]) -> None:
        if self._recorded():
            for i, root in enumerate(roots):
                self._local(f"{LOSS}{i or ''}", root)

    def _update(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Hook before the optimiser uses the gradients."""
        if not self._recorded():
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name, gradient = self._names.get(id(parameter)), parameter.grad
                if name and gradient is not None:
                    self._whole(f"{UPDATE}{name}", gradient)

    def _updated(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._recorded():
            self._weights(WEIGHTS)

    def _weights(self, prefix: str) -> None:
        for name, parameter in self._model.named_parameters():
            self._whole(f"{prefix}{name}", parameter)
        for name, buffer in self._model.named_buffers():
            self._local(f"{prefix}{name}", buffer)

    def _random(self) -> None:
        import torch

        self._recording.fingerprint(f"{RANDOM}torch", torch.get_rng_state())
        if torch.cuda.is_initialized():
            self._recording.fingerprint(f"{RANDOM}cuda", torch.cuda.get_rng_state())

    def _recorded(self) -> bool:
        """Whether the current step is recorded."""
        step = self._recording.at_step
        return bool(self._handles) and (step == self._first or step % self._every == 0)

    def _record(self, name: str, tensor: torch.Tensor) -> bool:
        """Record a tensor unless this forward pass has recorded it already; returns whether it did."""
        version = version_of(tensor)
        known = self._seen.get(id(tensor))
        if known is not None and known[0]() is tensor and known[1] == version:
            return False
        self._seen[id(tensor)] = weakref.ref(tensor), version
        self._local(name, tensor)
        return True

    def _local(self, name: str, tensor: torch.Tensor) -> None:
        """Record a tensor of this rank; of a sparse one its values and its indices."""
        import torch

        parts = {name: tensor.detach()}
        if tensor.layout == torch.sparse_coo:
            whole = tensor.detach().coalesce()
            parts = {f"{name}, values": whole.values(), f"{name}, indices": whole.indices()}
        for each, part in parts.items():
            try:
                self._recording.fingerprint(each, part, sample=self._sample)
            except TypeError as error:  # the training goes on
                warnings.warn(f"fpna.watch: {each} is not recorded: {error}", stacklevel=2)

    def _whole(self, name: str, tensor: torch.Tensor) -> None:
        """Record a tensor that all ranks have, or a DTensor, by ranges of the whole tensor, on one rank that its name
        decides. Collective for a DTensor."""
        import torch

        if tensor.layout != torch.strided:
            return self._local(name, tensor)
        whole = tensor.detach()
        if is_distributed(whole):
            whole = whole.full_tensor()  # type: ignore[attr-defined]
        if sum(name.encode()) % self._recording.size != self._recording.rank:
            return
        for first, rows in ranges(host(numbers(whole, name))):
            self._recording.fingerprints(name, rows, range(first, first + len(rows)), sample=self._sample)


class Backward:
    """Calls `call` with the roots of every backward pass before the pass, until `remove`."""

    def __init__(self, call: Any):
        import torch

        self._module, self._plain = torch.autograd, torch.autograd.backward
        plain = self._plain

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            call([tensors] if is_tensor(tensors) else list(tensors))
            return plain(tensors, *args, **kwargs)

        self._own = backward
        self._module.backward = backward

    def remove(self) -> None:
        if self._module.backward is self._own:
            self._module.backward = self._plain


def settings() -> dict[str, Any]:
    """The settings of torch in this process that may change bits."""
    import torch

    return {"threads": torch.get_num_threads(), "deterministic": torch.are_deterministic_algorithms_enabled()}


def inner(model: torch.nn.Module) -> torch.nn.Module:
    """The user's module inside DistributedDataParallel."""
    from torch.nn.parallel import DistributedDataParallel

    return model.module if isinstance(model, DistributedDataParallel) else model


def is_compiled(module: torch.nn.Module) -> bool:
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def is_distributed(tensor: torch.Tensor) -> bool:
    """Whether `tensor` is a DTensor, whose parts are on different ranks."""
    return hasattr(tensor, "full_tensor")


def in_backward() -> bool:
    """Whether autograd is running, for instance if a checkpoint computes activations again."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)


def version_of(tensor: torch.Tensor) -> int:
    """The number of changes in place; -1 for tensors of inference mode, which do not count them."""
    return -1 if tensor.is_inference() else tensor._version


def tensors(value: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """(place, tensor) for all tensors in nested lists, tuples, mappings and dataclasses; a single tensor has the empty
    place."""
    if is_tensor(value):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors(item, f"{path}.{key}" if key != "" else path)
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from tensors(item, f"{path}[{i}]" if len(value) > 1 else path)
    elif hasattr(type(value), "__dataclass_fields__"):
        for key in type(value).__dataclass_fields__:
            yield from tensors(getattr(value, key), f"{path}.{key}")


def ranges(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(first range, (ranges, elements)) of the flat array in at most RANGES + 1 ranges, which depend only on its number
    of elements."""
    flat = np.ascontiguousarray(array).reshape(-1)
    length = max(LEAST, -(-len(flat) // RANGES))
    whole = len(flat) // length
    if whole:
        yield 0, flat[: whole * length].reshape(whole, length)
    if len(flat) > whole * length:
        yield whole, flat[np.newaxis, whole * length :]
