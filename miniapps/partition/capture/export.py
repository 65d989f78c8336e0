"""Exports a step function of torch as a `Graph`: forward, backward and updates of buffers, by `aot_export_module`.

The export decomposes losses and normalisations over samples. So every sum over samples is a separate node, and every
mean divides by the true count, on any ranks. Optimisers are not part of the graph: they work element by element on each
rank's own arrays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

from miniapps.errors import UsageError
from miniapps.partition.capture.refused import (
    Outside,
    changed,
    cyclic,
    hooked,
    indivisible,
    mutated,
    of_other_types,
    random_operation,
    unkeyed,
    updated,
)
from miniapps.partition.capture.users import line_of, raised_by_user
from miniapps.partition.graphs.graph import Graph, Node, Source, Tensor
from miniapps.partition.graphs.repeat import repeated, split
from miniapps.partition.graphs.simplify import simplified
from miniapps.partition.manual import capturing

PLACES = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "copy", "requires_grad")
LARGEST_CONSTANT = 2**16  # bytes; larger tensors belong into buffers


class ExportError(UsageError):
    """A step function that cannot become a graph of operations on tensors of fixed shapes."""


def export(module, inputs: Sequence[Any], call: Callable | None = None, micro_batches: int = 1) -> Graph:
    """The graph of a step: `module(*inputs)`, a torch.nn.Module on tensors of fixed shapes, is a scalar loss; or
    `call(module, *inputs)` is.

    `micro_batches`: the step works on that many equal parts of its samples (dim 0 of all inputs), one after the other;
    its loss is the mean of their losses, and its gradients are those of this mean (`graphs.repeat`).

    Raises ExportError with advice, the line of the user's code and torch's reason. Also refuses steps that a graph
    would change, such as hooks of parameters and changed inputs, and steps without a guarantee: random numbers per
    rank, types narrower than float32. Errors of type UsageError in `call` pass through.
    """
    return repeated(of_micro_batch(module, inputs, call, micro_batches), micro_batches)


def of_micro_batch(module, inputs: Sequence[Any], call: Callable | None, micro_batches: int) -> Graph:
    """The graph of the first of `micro_batches`, whose loss is its part of the loss of the step. Arguments and errors
    as for `export`."""
    step = call or (lambda module, *inputs: module(*inputs))
    require(cyclic(module))
    require_one_device(module, inputs)
    require(hooked(module))
    require(indivisible(inputs, micro_batches))
    outside = Outside(module)
    first = split(inputs, micro_batches)[: len(inputs)]
    traced_module, signature = traced(module, first, one_of(step, micro_batches))
    require(outside.changed())
    require(mutated(signature))
    graph = Builder(traced_module, signature, tied(module)).graph()
    require(of_other_types(graph))
    require(updated(graph, micro_batches))
    return simplified(graph)


def require(reason: str) -> None:
    """Raise ExportError if there is a reason."""
    if reason:
        raise ExportError(reason)


def tied(module) -> dict[str, str]:
    """{further name: first name} of parameters and buffers that a module holds under several names."""
    first: dict[int, str] = {}
    named = (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    )
    return {name: first[id(t)] for name, t in named if first.setdefault(id(t), name) != name}


def one_of(call: Callable, micro_batches: int) -> Callable:
    """`call`, whose loss is the part of one of `micro_batches` in the loss of the step."""
    if micro_batches == 1:
        return call
    return lambda module, *inputs: call(module, *inputs) / micro_batches


def traced(module, inputs: tuple, call: Callable):
    """Traces forward and backward together; returns (torch.fx.GraphModule, its signature)."""
    from torch._functorch.aot_autograd import aot_export_module

    def export_by(apart: bool):
        step = stepping(module, call, apart)
        with tracing():
            return aot_export_module(
                step, inputs, trace_joint=True, output_loss_index=0, decompositions=decompositions()
            )

    try:
        try:
            return export_by(apart=False)
        except AssertionError as error:
            # Two parameters with one gradient, such as the biases of an LSTM: torch 2.13 counts the gradient once.
            if "gradients_to_parameters" not in str(error):
                raise
            return export_by(apart=True)
    except UsageError:
        raise
    except Exception as error:
        line, message = line_of(error), str(error).strip()
        raise ExportError(
            f"{advice(error, module, inputs, call)}{line}\ntorch: {type(error).__name__}: {message}"
        ) from error


@contextmanager
def tracing() -> Iterator[None]:
    """A context in which torch logs no error that it also raises, and in which a layer is no single operation of
    oneDNN, as an LSTM is, which no axis could cut. A manual region is one operation."""
    import torch

    onednn: Any = torch.backends.mkldnn
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.disabled, onednn.enabled
    logger.disabled, onednn.enabled = True, False
    regions = capturing.set(True)
    try:
        yield
    finally:
        capturing.reset(regions)
        logger.disabled, onednn.enabled = before


def stepping(module, call: Callable, apart: bool):
    """A module that calls `call(module, ...)`, with the parameters of `module` as `step.NAME`. `apart`: each parameter
    is multiplied by 1 first, so that each has a gradient of its own."""
    import torch

    class Called(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.step = module

        def forward(self, *given):
            return (call(self.step, *given),)

    class Apart(Called):
        def forward(self, *given):
            ones = {name: p * 1 for name, p in self.named_parameters()}
            return torch.func.functional_call(called, ones, given)

    called = Called()
    return Apart() if apart else called


def advice(error: Exception, module, inputs: tuple, call: Callable) -> str:
    """The advice for an error of torch's export."""
    kind, message = type(error).__name__, str(error)
    if raised_by_user(error):
        return f"the module raises {kind} when it is called"
    if kind.startswith(("DataDependent", "DynamicOutput")) or "data-dependent" in message:
        return (
            "the step has a shape or a branch that depends on values (nonzero, masks as indices, .item(), if): "
            "use torch.where, or sizes that are fixed in advance"
        )
    if "received a mutation" in message and (parameters := changed(module, inputs, call)):
        return parameters
    if "FakeTensor" in message:
        return "the step reads a tensor that is neither input, parameter nor buffer: register it as a buffer"
    if "did not receive a gradient" in message:
        names = ", ".join(without_gradient(module, inputs, call))
        return f"the loss does not depend on {names}: remove these parameters, or set their requires_grad to False"
    if "device" in message:
        return "the step mixes devices: move module and inputs to one device before the export"
    if "scalar" in message or "loss" in message:
        return "the module must return one scalar, the loss, that depends on its parameters"
    if line_of(error) and kind in ("RuntimeError", "IndexError", "ValueError", "TypeError"):
        return "torch refuses an operation of the module: shapes or types of its inputs may not fit"
    return (
        "the step cannot be exported: it must be a torch.nn.Module whose call on the inputs is a scalar loss"
    )


def without_gradient(module, inputs: tuple, call: Callable) -> list[str]:
    """The parameters without influence on the loss, from a step in eager mode."""
    import torch

    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    gradients = torch.autograd.grad(call(module, *inputs), [p for _, p in named], allow_unused=True)
    return [name for (name, _), gradient in zip(named, gradients, strict=True) if gradient is None]


def require_one_device(module, inputs: Sequence[Any]) -> None:
    """Raise ExportError unless all parameters, buffers and inputs lie on one device."""
    where: dict[str, str] = {}
    for name, tensor in (*module.named_parameters(), *module.named_buffers(), *enumerate(inputs)):
        if not hasattr(tensor, "device"):
            raise ExportError(
                f"input {name} is {type(tensor).__name__}, not a tensor; put constants into the module"
            )
        where.setdefault(str(tensor.device), f"input {name}" if isinstance(name, int) else name)
    if len(where) > 1:
        placed = "; ".join(f"{name} on {device}" for device, name in where.items())
        raise ExportError(f"the step mixes devices: {placed}; move all to one device before the export")


def decompositions() -> dict[Any, Callable]:
    """{operation: decomposition} of composite operations whose sums may run over a cut dim."""
    import torch
    from torch._decomp import get_decompositions

    aten = torch.ops.aten
    composite: list[Any] = [
        aten.nll_loss_forward, aten.nll_loss_backward, aten.nll_loss2d_forward, aten.nll_loss2d_backward,
        aten.mse_loss, aten.mse_loss_backward, aten.smooth_l1_loss, aten.smooth_l1_loss_backward,
        aten.binary_cross_entropy, aten.binary_cross_entropy_backward, aten.huber_loss,
        aten.huber_loss_backward, aten.binary_cross_entropy_with_logits, aten._unsafe_view,
        aten.log_sigmoid_forward, aten.log_sigmoid_backward, aten.linalg_vector_norm, aten.std.correction,
        aten.native_group_norm, aten.native_group_norm_backward, aten.addcmul, aten.addcdiv, aten.stack,
        aten._safe_softmax, aten.new_zeros, aten.new_ones, aten.new_full, aten.new_empty, aten.select_backward,
        aten.slice_backward,
    ]  # fmt: skip
    table = dict(get_decompositions(composite))

    def mean(x, *, dtype=None):
        return torch.sum(x, dtype=dtype) / x.numel()

    def mean_dim(x, dim, keepdim=False, *, dtype=None):
        dims = dim or range(x.dim())
        return torch.sum(x, list(dims), keepdim, dtype=dtype) / prod(x.shape[d] for d in dims)

    def variance(x, dim=None, *, correction=None, keepdim=False):
        dims = list(dim or range(x.dim()))
        count = prod(x.shape[d] for d in dims)
        apart = x - torch.sum(x, dims, True) / count
        return torch.sum(apart * apart, dims, keepdim) / max(
            0, count - (1 if correction is None else correction)
        )

    def variance_and_mean(x, dim=None, *, correction=None, keepdim=False):
        return variance(x, dim, correction=correction, keepdim=keepdim), mean_dim(x, dim or [], keepdim)

    def batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps):
        """Batch norm over all samples of all ranks in training, by sums over samples and places."""
        kept, plane = (1, -1, *[1] * (x.dim() - 2)), [0, *range(2, x.dim())]
        if not training:
            mean, rstd = running_mean, torch.rsqrt(running_var + eps)
            saved = x.new_zeros((0,)), x.new_zeros((0,))
        else:
            count = x.numel() // x.shape[1]
            mean = torch.sum(x, plane) / count
            apart = x - mean.view(kept)
            square = torch.sum(apart * apart, plane) / count
            rstd = torch.rsqrt(square + eps)
            saved = mean, rstd
        result = (x - mean.view(kept)) * rstd.view(kept)
        result = result if weight is None else result * weight.view(kept)
        result = result if bias is None else result + bias.view(kept)
        if not training or running_mean is None:
            return result, *saved, running_mean, running_var
        unbiased = square * (count / max(1, count - 1))
        new_mean = running_mean * (1 - momentum) + mean * momentum
        new_var = running_var * (1 - momentum) + unbiased * momentum
        return result, *saved, new_mean, new_var

    def batch_norm_legit(x, weight, bias, running_mean, running_var, training, momentum, eps):
        result, mean, rstd, new_mean, new_var = batch_norm(
            x, weight, bias, running_mean, running_var, training, momentum, eps
        )
        if training and running_mean is not None:
            running_mean.copy_(new_mean)
            running_var.copy_(new_var)
        return result, mean, rstd

    def batch_norm_without_training(x, weight, bias, running_mean, running_var, momentum, eps):
        return batch_norm(x, weight, bias, running_mean, running_var, False, momentum, eps)[:3]

    def batch_norm_backward(
        grad, x, weight, running_mean, running_var, saved_mean, saved_rstd, train, eps, mask
    ):
        kept, plane = (1, -1, *[1] * (x.dim() - 2)), [0, *range(2, x.dim())]
        mean, rstd = (saved_mean, saved_rstd) if train else (running_mean, torch.rsqrt(running_var + eps))
        normal = (x - mean.view(kept)) * rstd.view(kept)
        of_bias, of_weight = torch.sum(grad, plane), torch.sum(grad * normal, plane)
        scale = rstd if weight is None else weight * rstd
        inner = grad
        if train:
            count = x.numel() // x.shape[1]
            inner = grad - (of_bias / count).view(kept) - normal * (of_weight / count).view(kept)
        return (
            inner * scale.view(kept) if mask[0] else None,
            of_weight if mask[1] and weight is not None else None,
            of_bias if mask[2] and weight is not None else None,
        )

    table |= {
        aten.mean.default: mean,
        aten.mean.dim: mean_dim,
        aten.var.correction: variance,
        aten.var_mean.correction: variance_and_mean,
        aten._native_batch_norm_legit_no_training.default: batch_norm_without_training,
        aten.native_batch_norm.default: batch_norm_legit,
        aten._native_batch_norm_legit.default: batch_norm_legit,
        aten._native_batch_norm_legit_functional.default: batch_norm,
        aten.native_batch_norm_backward.default: batch_norm_backward,
    }
    return table


class Builder:
    """Translates the nodes of a torch.fx graph one by one into nodes of a Graph."""

    def __init__(self, traced, signature, tied: dict[str, str]):
        self.traced, self.signature, self.tied = traced, signature, tied
        self.names: dict[str, str] = {}  # value of each node of torch
        self.nodes: list[Node] = []
        self.modules: dict[str, tuple[str, bool]] = {}  # of values, see module_of
        self.sources: list[Source] = []

    def graph(self) -> Graph:
        """Returns the whole graph."""
        position = {name: k for k, name in enumerate(self.signature.user_inputs)}
        output = None
        for node in self.traced.graph.nodes:
            if node.op == "placeholder":
                self.take_source(node, position)
            elif node.op == "get_attr":
                self.take_constant(node)
            elif node.op == "output":
                output = node
            elif getattr(node.target, "__name__", "") == "getitem":
                owner, number = node.args
                self.names[node.name] = f"{self.names[owner.name]}.{number}"
            else:
                self.take_node(node)
        assert output is not None
        backward = self.signature.backward_signature
        of: dict[str, str] = {}  # frozen parameters have no gradient
        for name, parameter in backward.gradients_to_parameters.items():
            key, gradient = self._key(parameter), self.names[name]
            of[key] = self.added(of[key], gradient) if key in of else gradient
        # In the order of the module's parameters, not of the backward pass.
        keys = dict.fromkeys(map(self._key, self.signature.parameters))
        gradients = tuple((key, of[key]) for key in keys if key in of)
        updates = tuple(
            (self._key(key), self.names[name]) for name, key in self.signature.buffers_to_mutate.items()
        )
        # Not backward.loss_output: with updated buffers it is the first of these (torch 2.13).
        loss = self.names[self.signature.user_outputs[0]]
        return Graph(tuple(self.sources), tuple(self.nodes), loss, gradients, updates)

    def added(self, one: str, other: str) -> str:
        """The sum of two gradients of a tied parameter."""
        shape, dtype = next((t.shape, t.dtype) for n in self.nodes for t in n.results if t.name == other)
        name = f"{other}_tied"
        self.nodes.append(
            Node(name, "aten.add.Tensor", ("%" + one, "%" + other), (), (Tensor(name, shape, dtype),))
        )
        return name

    def take_source(self, node, position: dict[str, int]) -> None:
        """A parameter, buffer or input."""
        signature = self.signature
        if node.name in signature.inputs_to_parameters:
            kind, key = "parameter", self._key(signature.inputs_to_parameters[node.name])
        elif node.name in signature.inputs_to_buffers:
            kind, key = "buffer", self._key(signature.inputs_to_buffers[node.name])
        else:
            kind, key = "input", str(position[node.name])
        tensor = described(f"{kind}.{key}", node.meta["val"])
        self.names[node.name] = tensor.name
        if kind == "parameter":
            self.modules[tensor.name] = key.rpartition(".")[0], True
        if tensor.name not in {source.tensor.name for source in self.sources}:
            self.sources.append(Source(tensor, kind, key))

    def take_constant(self, node) -> None:
        """A tensor made while the step was traced."""
        value = getattr(self.traced, node.target)
        nbytes = value.numel() * value.element_size()
        if nbytes > LARGEST_CONSTANT:
            raise ExportError(
                f"the step holds a constant {node.target} of {nbytes} bytes; register it as a buffer of the module"
            )
        tensor = described(f"constant.{node.target}", value)
        self.names[node.name] = tensor.name
        data = value.detach().cpu().contiguous().numpy().tobytes()
        self.sources.append(Source(tensor, "constant", node.target, data))

    def take_node(self, node) -> None:
        """An operation."""
        value = node.meta.get("val")
        several = isinstance(value, (tuple, list))
        results = (
            tuple(described(f"{node.name}.{k}", part) for k, part in enumerate(value) if part is not None)
            if several
            else (described(node.name, value),)
            if value is not None
            else ()
        )
        kwargs = tuple((key, self._plain(part)) for key, part in node.kwargs.items() if key not in PLACES)
        self.names[node.name] = node.name
        args = tuple(self._plain(part) for part in node.args)
        operation = Node(node.name, str(node.target), args, kwargs, results)
        where = self.module_of(operation.operands())
        drawn = unkeyed(node.target, node.args, dict(node.kwargs))
        require(random_operation(drawn, where[0]) if drawn else "")
        self.modules.update((tensor.name, where) for tensor in results)
        self.nodes.append(replace(operation, where=where[0]))

    def module_of(self, operands: tuple[str, ...]) -> tuple[str, bool]:
        """Returns (the module of the first parameter among `operands`, else the module of the last operand; whether all
        operands are parameters).

        Tracing forward and backward together loses torch's source lines.
        """
        known = [self.modules[name] for name in operands if name in self.modules]
        of_weights = [module for module, weights in known if weights]
        if of_weights:
            return of_weights[0], len(of_weights) == len(operands)
        return (known[-1][0] if known else ""), False

    def _plain(self, argument):
        if isinstance(argument, (tuple, list)):
            return tuple(self._plain(part) for part in argument)
        if hasattr(argument, "all_input_nodes"):
            return "%" + self.names[argument.name]
        if argument is None or isinstance(argument, (bool, int, float, str)):
            return argument
        if type(argument).__name__ in ("SymInt", "SymFloat", "SymBool"):
            raise ExportError(
                "the step has a shape that depends on values; use sizes that are fixed in advance"
            )
        return str(argument)

    def _key(self, name: str) -> str:
        name = name.removeprefix("step.")
        return self.tied.get(name, name)


def described(name: str, value) -> Tensor:
    """Name, shape and dtype of a tensor of torch."""
    return Tensor(name, tuple(int(n) for n in value.shape), str(value.dtype).removeprefix("torch."))
