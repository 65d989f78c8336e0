"""Translates operations of ATen to nodes of a graph; `b`: the `capture.Builder`, `node`: a node of torch's program."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernels.inference.graph import MAPS

# Data movement, which is folded at capture where it does not depend on the input.
MOVES = {
    "view", "reshape", "flatten", "unsqueeze", "squeeze", "t", "transpose", "permute", "slice", "select",
    "expand", "clone", "contiguous", "alias", "detach", "detach_", "lift_fresh_copy", "zeros", "ones",
    "full", "zeros_like", "ones_like", "new_zeros", "cat", "stack",
}  # fmt: skip

ATEN: dict[str, Callable] = {}


def aten(*names: str) -> Callable:
    """Decorator that registers a function as the translation of these operations, given as `NAME.OVERLOAD`."""

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


@aten(
    "clone.default",
    "contiguous.default",
    "alias.default",
    "detach.default",
    "expand.default",
    "expand_as.default",
)
def _same(b, node, x, *_, **__):  # `expand`: the nodes that read it broadcast it themselves
    b.names[node.name] = b.value(node, x, broadcast=True)


@aten("slice.Tensor")
def _slice(b, node, x, *_):
    if node.meta["val"].shape != x.meta["val"].shape:
        raise b.refusal(node, "a part of an axis; only whole axes are supported")
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
    aten(f"{_name}.default")(
        _map(_name)
    )  # no in-place operations: nodes that read the operand later would see another value


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
            b.emit(node, operation, [b.value(node, a, broadcast=True) for a in (x, other)])
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
        raise b.refusal(node, "an upper limit; only a lower one is supported")
    _combine("maximum", "maximum")(b, node, x, least)


def _last(b, node, x, dims):
    """Raises Unsupported unless `dims` is the last axis alone."""
    rank = x.meta["val"].dim()
    dims = [dims] if isinstance(dims, int) else dims
    for d in dims or []:
        b.axis(node, d, rank)
    if not dims or [d % rank for d in dims] != [rank - 1]:
        raise b.refusal(node, f"axes {dims}: only the last one")


def _keep(b, node, name, x, inner):
    """Emits a reduction of the last axis, which stays with length 1."""
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
        raise b.refusal(node, "an axis other than the first of a sample")
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
