"""Captures graphs from networks in torch by torch.export.

    graph = capture(forward, weights, (28, 28))

`forward(tensors, x)` uses torch: `tensors` in the order of `weights`, x `(batch, *sample)`. The batch size stays open;
shapes in the graph are those of one sample. An operation that couples samples, or that `static` lacks, raises
`Unsupported` with the ATen operation, the node and the line of the source.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from kernels.inference.arrays import aligned_copy
from kernels.inference.aten import ATEN, MOVES
from kernels.inference.graph import Graph, Node, Unsupported


def capture(
    forward: Callable, weights: Mapping[str, np.ndarray], sample: tuple[int, ...], batched: bool = True
) -> Graph:
    """The graph of `forward`; raises Unsupported. Without `batched`, `sample` is the shape of the whole input."""
    return graph_of(export(forward, weights, sample, batched), sample, batched)


def graph_of(
    program: Any, sample: tuple[int, ...], batched: bool, weights: Sequence[np.ndarray] = ()
) -> Graph:
    """The graph of a program from `export`; `weights` replace the weights with which it was exported."""
    import torch

    builder = Builder(batched)
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    held = {**program.state_dict, **program.constants}
    held |= {f"w{k}": torch.from_numpy(aligned_copy(np.asarray(array))) for k, array in enumerate(weights)}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            if (target := specs[node.name].target) is None:
                builder.take_input(node, sample)
            else:
                builder.tensors[node.name] = held[target].detach()
        elif node.op == "output":
            return builder.finish(only_result(node.args[0]))
        else:
            with torch.no_grad():
                builder.add(node)
    raise AssertionError("a program without an output")


def export(
    forward: Callable,
    weights: Mapping[str, np.ndarray],
    sample: tuple[int, ...],
    batched: bool,
    batch: int | None = None,
):
    """The torch.export.ExportedProgram of `forward`, weights as buffers, for any number of samples or for `batch`."""
    import torch
    from torch._dynamo.exc import UserError, UserErrorType
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    module = as_module(forward, weights)
    shape = (3 if batch is None else batch, *sample) if batched else tuple(sample)
    open_batch = ({0: torch.export.Dim("batch")},) if batched and batch is None else None
    try:
        with torch.no_grad():
            return torch.export.export(module, (torch.zeros(shape),), dynamic_shapes=open_batch, strict=False)
    except GuardOnDataDependentSymNode as error:
        frames = [
            f
            for f in traceback.extract_tb(error.__traceback__)
            if f.name == "forward" and not of_torch(f.filename)
        ]
        where = f"{frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}" if frames else "no line known"
        raise Unsupported(
            f"forward branches on the values of its input ({where}): a static network needs one path for all inputs"
        ) from None
    except UserError as error:
        if error.error_type is not UserErrorType.CONSTRAINT_VIOLATION:
            raise
        raise Unsupported(
            "forward fixes the number of samples, as len(x) does: use x.shape[0], which stays open"
        ) from None


def as_module(forward: Callable, weights: Mapping[str, np.ndarray]):
    """A torch.nn.Module of one input that holds `weights` (copies) and calls `forward(tensors, x)`."""
    import torch

    forward = named_forward(forward)

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for k, array in enumerate(weights.values()):
                self.register_buffer(f"w{k}", torch.from_numpy(aligned_copy(np.asarray(array))))

        def forward(self, x):
            return forward([getattr(self, f"w{k}") for k in range(len(weights))], x)

    return Network().eval()


def named_forward(function: Callable) -> Callable:
    """The function, renamed `forward`: torch.export keeps source lines only for functions of that name."""
    if not isinstance(function, FunctionType) or function.__name__ == "forward":
        return function
    code = function.__code__.replace(co_name="forward")
    copy = FunctionType(code, function.__globals__, "forward", function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


class Builder:
    """Builds a graph from the nodes of a program, one by one."""

    def __init__(self, batched: bool):
        self.batched = batched
        self.nodes: list[Node] = []
        self.names: dict[str, str] = {}  # {node of the program: node of the graph with its value}
        self.tensors: dict[str, Any] = {}  # values that do not depend on the input
        self.constants: dict[str, np.ndarray] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.batch: object = None

    def take_input(self, node, sample) -> None:
        self.input, self.shapes[node.name], self.names[node.name] = node.name, tuple(sample), node.name
        self.sample = tuple(sample)
        if self.batched:
            self.batch = node.meta["val"].shape[0]

    def finish(self, result) -> Graph:
        if result.name not in self.names:
            raise Unsupported("the result does not depend on the input: there is nothing to schedule")
        name, shape = self.names[result.name], self.shape_of(result)
        if self.shapes[name] != shape:
            raise self.refusal(result, f"an expanded result: {self.shapes[name]} to {shape}")
        used = {c for node in self.nodes for c in node.constants.values()}
        constants = {name: array for name, array in self.constants.items() if name in used}
        return Graph(self.input, self.sample, name, self.nodes, constants, self.batched)

    def add(self, node) -> None:
        """Translates a node of the program, or folds it if it does not depend on the input."""
        name, value = str(node.target), node.meta.get("val")
        if not hasattr(value, "dtype") and not isinstance(value, (tuple, list)):
            return  # the number of samples and values from it: shapes here are those of one sample
        if not any(n.name in self.names for n in node.all_input_nodes):
            if name.split(".")[1] not in MOVES:
                raise self.refusal(node, "arithmetic on weights alone; compute it before")
            self.tensors[node.name] = node.target(
                *(self._plain(a) for a in node.args), **{k: self._plain(a) for k, a in node.kwargs.items()}
            )
            return
        translate = ATEN.get(name)
        if translate is None:
            raise self.refusal(node, "not an operation of `static`")
        if str(value.dtype) != "torch.float32":
            raise self.refusal(node, f"a result of {value.dtype}; `static` supports only float32")
        translate(self, node, *node.args, **node.kwargs)

    def _plain(self, argument):
        if isinstance(argument, (list, tuple)):
            return type(argument)(self._plain(a) for a in argument)
        return self.tensors[argument.name] if hasattr(argument, "all_input_nodes") else argument

    def shape_of(self, node) -> tuple[int, ...]:
        """The shape of one sample of a node; raises Unsupported unless the batch is its first axis and no other."""
        shape = node.meta["val"].shape
        if self.batched:
            if not len(shape) or str(shape[0]) != str(self.batch):
                raise self.refusal(
                    node, f"the first axis of {tuple(shape)} is not the batch: samples are coupled"
                )
            shape = shape[1:]
        if not all(isinstance(n, int) for n in shape):
            raise self.refusal(node, f"a shape {tuple(shape)} that depends on the batch")
        return tuple(shape)

    def axis(self, node, dim: int, rank: int) -> int:
        """The axis of a sample, from 0, for axis `dim` of an array of `rank` axes; raises Unsupported for the batch."""
        dim = dim % rank
        if self.batched and dim == 0:
            raise self.refusal(node, "it works along the batch: samples are coupled")
        return dim - self.batched

    def refusal(self, node, why: str) -> Unsupported:
        known = ", ".join(sorted({name.split(".")[1] for name in ATEN}))
        return Unsupported(
            f"{node.target} (node {node.name!r}, {line(node)}): {why}. `static` supports these of ATen: {known}"
        )

    def value(self, node, argument, broadcast: bool = False) -> str:
        """The name of the graph's node with the value of an argument of `node`; the argument depends on the input.

        Raises Unsupported for an expanded argument, unless `node` itself broadcasts (`broadcast`).
        """
        if getattr(argument, "name", None) not in self.names:
            raise self.refusal(node, f"{argument} does not depend on the input, where it must")
        name = self.names[argument.name]
        if not broadcast and self.shapes[name] != self.shape_of(argument):
            raise self.refusal(
                node, f"{argument} is expanded; only arithmetic with two operands supports this"
            )
        return name

    def constant(self, node, argument, kind=np.float32) -> str:
        """Stores an argument that does not depend on the input as a constant; returns its name."""
        if getattr(argument, "name", None) not in self.tensors:
            raise self.refusal(node, f"{argument} depends on the input, where it must not")
        array = np.ascontiguousarray(self.tensors[argument.name].numpy())
        if array.dtype != kind:
            raise self.refusal(node, f"{argument.name} is {array.dtype}, not {np.dtype(kind)}")
        self.constants[argument.name] = array
        return argument.name

    def scalar(self, node, number) -> str:
        name = f"{node.name}.{len(self.constants)}"
        self.constants[name] = np.array(number, np.float32)
        return name

    def emit(self, node, operation, inputs, shape=None, constants=None, name=None, **attributes) -> str:
        name = name or node.name
        shape = self.shape_of(node) if shape is None else tuple(shape)
        self.nodes.append(
            Node(name, operation, tuple(inputs), shape, constants or {}, attributes, line(node))
        )
        self.shapes[name] = shape
        self.names[node.name] = name
        return name


def of_torch(file: str) -> bool:
    """Whether a file in a stack trace belongs to torch; torch names its files relative to its directory."""
    import torch

    return file.startswith("torch/") or Path(torch.__file__).parent in Path(file).parents


def only_result(results: Sequence[Any]) -> Any:
    """The node of a program's single result; raises Unsupported where `forward` returns anything else."""
    if len(results) == 1 and hasattr(results[0], "meta"):
        return results[0]
    kinds = ["a tensor" if hasattr(each, "meta") else repr(each) for each in results]
    raise Unsupported(
        f"forward returns {' and '.join(kinds) or 'nothing'}, but a static network has one result, a tensor: "
        "return only that"
    )


def line(node) -> str:
    """The innermost source line outside torch that made a node, as `FILE:LINE: text`."""
    trace = [part for part in node.meta.get("stack_trace", "").splitlines() if part.strip()]
    for k in range(len(trace) - 1, -1, -1):
        if trace[k].strip().startswith("File "):
            file, number = trace[k].strip().split('"')[1], trace[k].split("line ")[1].split(",")[0]
            if of_torch(file):
                continue
            return f"{file}:{number}: {' '.join(part.strip() for part in trace[k + 1 :])}".rstrip(": ")
    return "no line known"
