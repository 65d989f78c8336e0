"""A mode in which torch's own calls add in a chosen order, inside an unchanged model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernels.torchops.alternatives import operators
from kernels.torchops.alternatives.opaque import checked_order

# Calls of torch that add, forward or backward, and have no operator here.
ADDS = (
    "__matmul__", "addbmm", "addmm", "addmv", "avg_pool2d", "baddbmm", "batch_norm", "bilinear", "bmm", "cdist",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cross_entropy",
    "ctc_loss", "cumsum", "dot", "einsum", "embedding_bag", "grid_sample", "group_norm", "gru", "index_reduce",
    "instance_norm", "interpolate", "kl_div", "layer_norm", "linalg_norm", "linear", "log_softmax", "logsumexp",
    "lstm", "matmul", "max_unpool2d", "mean", "mm", "mse_loss", "multi_head_attention_forward", "mv", "nansum",
    "nll_loss", "norm", "prod", "put_", "rms_norm", "scaled_dot_product_attention", "scatter_reduce", "softmax",
    "std", "tensordot", "trace", "var", "vector_norm",
)  # fmt: skip


class Replaced(TorchFunctionMode):
    """The mode of the function `replaced`. Its counters have calls by name: `replaced` those that add in its order,
    `kept` those that add as torch does, since there is no operator for the call or for its arguments (with the reason).
    """

    def __init__(self, order: str):
        super().__init__()
        self.order = order
        self.replaced: Counter[str] = Counter()
        self.kept: Counter[str] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(getattr(func, "__name__", func))
        call = CALLS.get(name)
        if call is None:
            if name.rstrip("_") in ADDS or name in ADDS:
                self.kept[name] += 1
            return func(*args, **kwargs)
        try:
            result = call(self.order, *args, **kwargs)
        except _Kept as reason:
            if str(reason):
                self.kept[f"{name} ({reason})"] += 1
            return func(*args, **kwargs)
        self.replaced[name] += 1
        if name.endswith("_") and not name.endswith("__"):
            args[0].copy_(result)
            return args[0]
        return result


class _Kept(Exception):
    """Raised to make torch's own call. The message is the reason; it is empty if the call adds nothing."""


def replaced(order: str = operators.ORDER) -> Replaced:
    """A context in which torch's `index_add`, `scatter_add`, `index_put`, `sum`, `index_select`, `gather` and
    `embedding`, as functions, as methods and in place, add in `order`, forward and backward.

        with fpna.torch.replaced() as mode:
            loss = model(x)
        loss.backward()
        print(mode.kept)                  # calls that still add as torch does

    It applies to this thread. The backward pass may run after it. Raises ChoiceError for an unknown order.
    """
    checked_order(order)
    return Replaced(order)


def _floating(*tensors: Any) -> None:
    if any(not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point() for tensor in tensors):
        raise _Kept
    if any(tensor.layout != torch.strided for tensor in tensors):
        raise _Kept("sparse")


def _index_add(
    order: str, input: Any, dim: Any, index: Any, source: Any, *, alpha: float = 1, out: Any = None
) -> Any:
    _floating(input, source)
    _no_out(out)
    return operators.index_add(input, dim, index, source, alpha=alpha, order=order)


def _scatter_add(order: str, input: Any, dim: Any, index: Any, src: Any, *, out: Any = None) -> Any:
    _floating(input, src)
    _no_out(out)
    return operators.scatter_add(input, dim, index, src, order=order)


def _index_put(order: str, input: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    _floating(input, values)
    if not accumulate:
        raise _Kept("accumulate=False: the last writer wins")
    if any(index is not None and index.dtype == torch.bool for index in indices):
        raise _Kept("a mask")
    return operators.index_put(input, indices, values, True, order=order)


def _sum(order: str, input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None,
         out: Any = None) -> Any:  # fmt: skip
    _no_out(out)
    if not isinstance(input, torch.Tensor):
        raise _Kept
    _floating(input.to(dtype) if dtype is not None else input)
    return operators.sum(
        input if dtype is None else input.to(dtype), dim if axis is None else axis, keepdim, order=order
    )


def _index_select(order: str, input: Any, dim: Any, index: Any, *, out: Any = None) -> Any:
    _floating(input)
    _no_out(out)
    return operators.index_select(input, dim, index, order=order)


def _gather(
    order: str, input: Any, dim: Any, index: Any, *, sparse_grad: bool = False, out: Any = None
) -> Any:
    _floating(input)
    _no_out(out)
    if sparse_grad:
        raise _Kept("sparse_grad")
    return operators.gather(input, dim, index, order=order)


def _embedding(
    order: str,
    input: Any,
    weight: Any,
    padding_idx: Any = None,
    max_norm: Any = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    _floating(weight)
    if max_norm is not None or scale_grad_by_freq or sparse:
        raise _Kept("max_norm, scale_grad_by_freq or sparse")
    return operators.embedding(input, weight, padding_idx=padding_idx, order=order)


def _no_out(out: Any) -> None:
    if out is not None:
        raise _Kept("out=")


CALLS: dict[str, Callable[..., Any]] = {
    "index_add": _index_add, "index_add_": _index_add, "scatter_add": _scatter_add, "scatter_add_": _scatter_add,
    "index_put": _index_put, "index_put_": _index_put, "sum": _sum, "index_select": _index_select, "gather": _gather,
    "embedding": _embedding,
}  # fmt: skip
