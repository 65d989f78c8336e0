"""Networks as a small graph of our own, taken from a program that torch.export made.

    graph = capture(forward, weights, (28, 28))

`forward(tensors, x)` is written in torch: `tensors` in the order of `weights`, x `(batch, *sample)`. The batch stays
open; shapes in the graph are those of one sample. What couples samples, and what no operation here stands for, raises
`Unsupported` with the ATen operation, the node and the line of the source.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from kernels.guarantees import ChoiceError
from kernels.inference.arrays import aligned_copy

MAPS = ("relu", "exp", "tanh", "sigmoid", "log", "sqrt", "neg")
PAIRS = ("add", "sub", "rsub", "mul", "div", "rdiv", "maximum")
REDUCTIONS = ("sum", "mean", "norm", "max")


class Unsupported(ChoiceError):
    """A network that has something which `static` lacks; the message says what, where, and what there is."""


@dataclass(frozen=True)
class Node:
    """One operation: `operation` of the nodes `inputs` and of constants, by role; `shape` is that of one sample."""

    name: str
    operation: str
    inputs: tuple[str, ...]
    shape: tuple[int, ...]
    constants: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, object] = field(default_factory=dict)
    where: str = ""  # line of the source


@dataclass
class Graph:
    """Nodes in an order in which they can be computed, and the constants that they name.

    The node `input` is given; `output` is the name of the node that is the result. `batched`: whether arrays have a
    leading axis of samples; without it the whole input is one sample.
    """

    input: str
    sample: tuple[int, ...]
    output: str
    nodes: list[Node]
    constants: dict[str, np.ndarray]
    batched: bool = True

    def shape(self, name: str) -> tuple[int, ...]:
        """Of one sample of a node or the input."""
        return self.sample if name == self.input else next(n.shape for n in self.nodes if n.name == name)

    def users(self, name: str) -> list[Node]:
        """The nodes that read `name`."""
        return [node for node in self.nodes if name in node.inputs]


def capture(
    forward: Callable, weights: Mapping[str, np.ndarray], sample: tuple[int, ...], batched: bool = True
) -> Graph:
    """The graph of `forward`; raises Unsupported. Without `batched`, `sample` is the shape of the whole input."""
    import torch

    program = export(forward, weights, sample, batched)
    builder = Builder(batched)
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    held = {**program.state_dict, **program.constants}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            if (target := specs[node.name].target) is None:
                builder.take_input(node, sample)
            else:
                builder.tensors[node.name] = held[target].detach()
        elif node.op == "output":
            (result,) = node.args[0]
            return builder.finish(result)
        else:
            with torch.no_grad():
                builder.add(node)
    raise AssertionError("a program without an output")


def export(forward: Callable, weights: Mapping[str, np.ndarray], sample: tuple[int, ...], batched: bool):
    """The torch.export.ExportedProgram of `forward` with its weights as buffers and an open batch."""
    import torch

    module = as_module(forward, weights)
    shape = (3, *sample) if batched else tuple(sample)
    open_batch = ({0: torch.export.Dim("batch")},) if batched else None
    with torch.no_grad():
        return torch.export.export(module, (torch.zeros(shape),), dynamic_shapes=open_batch, strict=False)


def as_module(forward: Callable, weights: Mapping[str, np.ndarray]):
    """A torch.nn.Module of one input that holds `weights` (copies) and calls `forward(tensors, x)`."""
    import torch

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for k, array in enumerate(weights.values()):
                self.register_buffer(f"w{k}", torch.from_numpy(aligned_copy(np.asarray(array))))

        def forward(self, x):
            return forward([getattr(self, f"w{k}") for k in range(len(weights))], x)

    return Network().eval()


class Builder:
    """Nodes of a program, added one by one."""

    def __init__(self, batched: bool):
        self.batched = batched
        self.nodes: list[Node] = []
        self.names: dict[str, str] = {}  # of a node of the program: that of the node here which has its value
        self.tensors: dict[str, object] = {}  # what does not depend on the input
        self.constants: dict[str, np.ndarray] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.batch = None

    def take_input(self, node, sample) -> None:
        self.input, self.shapes[node.name], self.names[node.name] = node.name, tuple(sample), node.name
        self.sample = tuple(sample)
        if self.batched:
            self.batch = node.meta["val"].shape[0]

    def finish(self, result) -> Graph:
        if result.name not in self.names:
            raise Unsupported("the result does not depend on the input: nothing is to be scheduled")
        name, shape = self.names[result.name], self.shape_of(result)
        if self.shapes[name] != shape:
            raise self.refusal(result, f"an expanded result: {self.shapes[name]} to {shape}")
        used = {c for node in self.nodes for c in node.constants.values()}
        constants = {name: array for name, array in self.constants.items() if name in used}
        return Graph(self.input, self.sample, name, self.nodes, constants, self.batched)

    def add(self, node) -> None:
        """Translate a node of the program, or fold it where the input does not enter it."""
        name = str(node.target)
        if not any(n.name in self.names for n in node.all_input_nodes):
            if name.split(".")[1] not in MOVES:
                raise self.refusal(node, "arithmetic on weights alone; do it before")
            self.tensors[node.name] = node.target(
                *(self._plain(a) for a in node.args), **{k: self._plain(a) for k, a in node.kwargs.items()}
            )
            return
        translate = ATEN.get(name)
        if translate is None:
            raise self.refusal(node, "no operation of `static`")
        value = node.meta["val"]
        if str(value.dtype) != "torch.float32":
            raise self.refusal(node, f"a result of {value.dtype}; `static` has float32 alone")
        translate(self, node, *node.args, **node.kwargs)

    def _plain(self, argument):
        if isinstance(argument, (list, tuple)):
            return type(argument)(self._plain(a) for a in argument)
        return self.tensors[argument.name] if hasattr(argument, "all_input_nodes") else argument

    def shape_of(self, node) -> tuple[int, ...]:
        """Of one sample of a node of the program; raises Unsupported where the batch is not its first axis alone."""
        shape = node.meta["val"].shape
        if self.batched:
            if not len(shape) or str(shape[0]) != str(self.batch):
                raise self.refusal(node, f"the first axis of {tuple(shape)} is not the batch: samples are coupled")
            shape = shape[1:]
        if not all(isinstance(n, int) for n in shape):
            raise self.refusal(node, f"a shape {tuple(shape)} that depends on the batch")
        return tuple(shape)

    def axis(self, node, dim: int, rank: int) -> int:
        """An axis of a sample, counted from 0; `rank`: axes of the array. Raises Unsupported for that of the batch."""
        dim = dim % rank
        if self.batched and dim == 0:
            raise self.refusal(node, "it works along the batch: samples are coupled")
        return dim - self.batched

    def refusal(self, node, why: str) -> Unsupported:
        known = ", ".join(sorted({name.split(".")[1] for name in ATEN}))
        return Unsupported(
            f"{node.target} (node {node.name!r}, {line(node)}): {why}. `static` knows of ATen: {known}"
        )

    def value(self, node, argument) -> str:
        """The node here that has the value of an argument of `node`, which depends on the input."""
        if getattr(argument, "name", None) not in self.names:
            raise self.refusal(node, f"{argument} does not depend on the input, where it must")
        return self.names[argument.name]

    def constant(self, node, argument, kind=np.float32) -> str:
        """The name of an argument that does not depend on the input, as a constant."""
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
        self.nodes.append(Node(name, operation, tuple(inputs), shape, constants or {}, attributes, line(node)))
        self.shapes[name] = shape
        self.names[node.name] = name
        return name


def line(node) -> str:
    """The line of the source that a node comes from, as `FILE:LINE: text`."""
    trace = [part for part in node.meta.get("stack_trace", "").splitlines() if part.strip()]
    for k in range(len(trace) - 1, -1, -1):
        if trace[k].strip().startswith("File "):
            file, number = trace[k].strip().split('"')[1], trace[k].split("line ")[1].split(",")[0]
            return f"{file}:{number}: {' '.join(part.strip() for part in trace[k + 1 :])}".rstrip(": ")
    return "no line known"


# ---- the operations of ATen -----------------------------------------------------------------------------------

# Data movement, which may be done once and for all on what does not depend on the input.
MOVES = (
    "view reshape flatten unsqueeze squeeze t transpose permute slice select expand clone contiguous alias detach "
    "detach_ lift_fresh_copy zeros ones full zeros_like ones_like new_zeros cat stack"
).split()

ATEN: dict[str, Callable] = {}


def aten(*names: str) -> Callable:
    """Decorator: the function translates these operations, by `NAME.OVERLOAD`."""

    def register(function):
        ATEN.update({f"aten.{name}": function for name in names})
        return function

    return register


def _pair(value, default=None) -> tuple[int, int]:
    value = default if value is None or value == [] else value
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


@aten("view.default", "reshape.default", "flatten.using_ints", "unsqueeze.default", "squeeze.dim", "squeeze.dims",
      "squeeze.default", "_unsafe_view.default")  # fmt: skip
def _reshape(b, node, x, *_, **__):
    b.emit(node, "reshape", [b.value(node, x)])


@aten("clone.default", "contiguous.default", "alias.default", "detach.default", "expand.default")
def _same(b, node, x, *_, **__):  # `expand`: whoever reads it broadcasts by itself
    b.names[node.name] = b.value(node, x)


@aten("dropout.default")
def _dropout(b, node, x, p, train):
    if train:
        raise b.refusal(node, "dropout is for training")
    b.names[node.name] = b.value(node, x)


@aten("linear.default")
def _linear(b, node, x, weight, bias=None):
    constants = {"weight": b.constant(node, weight)}
    if bias is not None:
        constants["bias"] = b.constant(node, bias)
    b.emit(node, "linear", [b.value(node, x)], constants=constants)


@aten("addmm.default", "mm.default", "matmul.default")
def _product(b, node, *arguments, beta=1, alpha=1):
    x, weight = arguments[-2:]
    if (beta, alpha) != (1, 1):
        raise b.refusal(node, f"beta = {beta}, alpha = {alpha}: only 1 and 1")
    constants = {"weight": b.constant(node, weight)}
    matrix = b.constants[constants["weight"]]
    if matrix.ndim != 2:
        raise b.refusal(node, f"a second factor with {matrix.ndim} axes; only matrices")
    name = constants["weight"] = f"{node.name}.weight"
    b.constants[name] = np.ascontiguousarray(matrix.T)
    if len(arguments) == 3:
        constants["bias"] = b.constant(node, arguments[0])
        if b.constants[constants["bias"]].shape != (matrix.shape[1],):
            raise b.refusal(node, "an addend that is not one number per column")
    b.emit(node, "linear", [b.value(node, x)], constants=constants)


@aten("conv2d.default", "convolution.default")
def _conv2d(b, node, x, weight, bias=None, stride=1, padding=0, dilation=1, *rest):
    transposed, groups = (rest[0], rest[2]) if len(rest) == 3 else (False, *(rest or (1,)))[:2]
    if transposed or groups != 1:
        raise b.refusal(node, f"transposed = {transposed}, groups = {groups}: only False and 1")
    constants = {"weight": b.constant(node, weight)}
    if bias is not None:
        constants["bias"] = b.constant(node, bias)
    b.emit(node, "conv2d", [b.value(node, x)], constants=constants,
           stride=_pair(stride), padding=_pair(padding), dilation=_pair(dilation))  # fmt: skip


@aten("max_pool2d.default")
def _max_pool2d(b, node, x, kernel, stride=None, padding=0, dilation=1, ceil=False):
    if _pair(padding) != (0, 0) or _pair(dilation) != (1, 1) or ceil:
        raise b.refusal(node, f"padding {padding}, dilation {dilation}, ceil_mode {ceil}: only 0, 1, False")
    b.emit(node, "max_pool2d", [b.value(node, x)], window=_pair(kernel), stride=_pair(stride, kernel))


@aten("avg_pool2d.default")
def _avg_pool2d(b, node, x, kernel, stride=None, padding=0, ceil=False, include=True, divisor=None):
    if _pair(padding) != (0, 0) or ceil or divisor is not None:
        raise b.refusal(node, f"padding {padding}, ceil_mode {ceil}, divisor {divisor}: only 0, False, None")
    b.emit(node, "avg_pool2d", [b.value(node, x)], window=_pair(kernel), stride=_pair(stride, kernel))


def _map(name):
    return lambda b, node, x: b.emit(node, name, [b.value(node, x)])


for _name in MAPS:
    aten(f"{_name}.default")(_map(_name))  # none in place: later readers would see another value


def _combine(name, turned):
    def translate(b, node, x, other, alpha=1):
        if alpha != 1:
            raise b.refusal(node, f"alpha = {alpha}: only 1")
        operation = name
        if getattr(x, "name", None) not in b.names:
            x, other, operation = other, x, turned
        if isinstance(other, (int, float)):
            b.emit(node, operation, [b.value(node, x)], constants={"other": b.scalar(node, other)})
        elif other.name in b.names:
            b.emit(node, operation, [b.value(node, x), b.value(node, other)])
        else:
            constant = b.constant(node, other)
            if b.batched and b.constants[constant].ndim > len(b.shape_of(node)):
                raise b.refusal(node, "a constant with an axis for the batch")
            b.emit(node, operation, [b.value(node, x)], constants={"other": constant})

    return translate


for _name, _turned in (("add", "add"), ("sub", "rsub"), ("mul", "mul"), ("div", "rdiv")):
    aten(f"{_name}.Tensor", f"{_name}.Scalar")(_combine(_name, _turned))
aten("rsub.Scalar", "rsub.Tensor")(_combine("rsub", "sub"))


@aten("maximum.default")
def _maximum(b, node, x, other):
    _combine("maximum", "maximum")(b, node, x, other)


@aten("clamp_min.default", "clamp.default")
def _clamp_min(b, node, x, least=None, most=None, *, min=None, max=None):
    least, most = least if min is None else min, most if max is None else max
    if most is not None or least is None:
        raise b.refusal(node, "a largest value; only a least one")
    _combine("maximum", "maximum")(b, node, x, least)


def _last(b, node, x, dims):
    """Raises Unsupported unless the last axis alone is meant."""
    rank = x.meta["val"].dim()
    dims = [dims] if isinstance(dims, int) else dims
    if not dims or [d % rank for d in dims] != [rank - 1] or rank == b.batched:
        raise b.refusal(node, f"axes {dims}: only the last one")


def _keep(b, node, name, x, inner):
    """Emit a reduction of the last axis, which stays with length 1, and drop it where the program does."""
    shape = b.shapes[b.value(node, x)]
    kept = b.emit(node, name, [b.value(node, x)], shape=(*shape[:-1], 1), name=inner)
    return kept


def _reduction(name):
    def translate(b, node, x, dims=None, keepdim=False, **options):
        if options.get("dtype") is not None:
            raise b.refusal(node, "another type of the result")
        _last(b, node, x, dims)
        if keepdim:
            _keep(b, node, name, x, node.name)
        else:
            b.emit(node, "reshape", [_keep(b, node, name, x, f"{node.name}.kept")])

    return translate


for _name in ("sum", "mean"):
    aten(f"{_name}.dim", f"{_name}.dim_IntList")(_reduction(_name))
aten("amax.default")(_reduction("max"))


@aten("linalg_vector_norm.default", "norm.ScalarOpt_dim")
def _norm(b, node, x, order=2, dims=None, keepdim=False, **options):
    if order != 2:
        raise b.refusal(node, f"the norm of order {order}: only 2")
    _reduction("norm")(b, node, x, dims, keepdim, **options)


@aten("softmax.int", "_softmax.default", "log_softmax.int", "_log_softmax.default")
def _softmax(b, node, x, dim, *_, **__):
    _last(b, node, x, dim)
    source, name, shape = b.value(node, x), node.name, b.shape_of(node)
    largest = _keep(b, node, "max", x, f"{name}.max")
    shifted = b.emit(node, "sub", [source, largest], shape=shape, name=f"{name}.shifted")
    powers = b.emit(node, "exp", [shifted], shape=shape, name=f"{name}.exp")
    total = b.emit(node, "sum", [powers], shape=(*shape[:-1], 1), name=f"{name}.sum")
    if "log" in str(node.target):
        log = b.emit(node, "log", [total], shape=(*shape[:-1], 1), name=f"{name}.log")
        b.emit(node, "sub", [shifted, log])
    else:
        b.emit(node, "div", [powers, total])


@aten("cat.default")
def _cat(b, node, parts, dim=0):
    axis = b.axis(node, dim, node.meta["val"].dim())
    b.emit(node, "concat", [b.value(node, part) for part in parts], axis=axis)


@aten("index_select.default")
def _index_select(b, node, x, dim, index):
    if b.axis(node, dim, x.meta["val"].dim()) != 0:
        raise b.refusal(node, "another axis than the first of a sample")
    b.emit(node, "gather", [b.value(node, x)], constants={"index": b.constant(node, index, np.int64)})


@aten("index.Tensor")
def _index(b, node, x, indices):
    if b.batched or len(indices) != 1:
        raise b.refusal(node, "only one index, of the first axis, without a batch")
    _index_select(b, node, x, 0, indices[0])


@aten("index_add.default")
def _index_add(b, node, x, dim, index, source, alpha=1):
    if alpha != 1 or b.axis(node, dim, node.meta["val"].dim()) != 0:
        raise b.refusal(node, "only along the first axis of a sample, with alpha 1")
    constants = {"index": b.constant(node, index, np.int64)}
    inputs = [b.value(node, source)]
    if x.name in b.names:
        inputs.append(b.value(node, x))
    else:
        constants["start"] = b.constant(node, x)
    b.emit(node, "index_add", inputs, constants=constants)


def elements(shape: tuple[int, ...]) -> int:
    """Of an array of that shape."""
    return math.prod(shape)
