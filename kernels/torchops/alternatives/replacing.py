"""A mode in which torch's own calls add in a chosen order, inside an unchanged model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernels.sums.prefix import ORDERS as OF_PREFIXES
from kernels.torchops.alternatives import lookups, operators, reductions
from kernels.torchops.alternatives.opaque import checked_order

# Calls of torch that add, forward or backward, and have no operator here.
ADDS = (
    "__matmul__", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "addbmm", "addmm", "addmv",
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "baddbmm", "batch_norm", "bilinear", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "bmm", "cdist", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "corrcoef", "cosine_embedding_loss", "cosine_similarity", "cov",
    "cross_entropy", "ctc_loss", "dist", "dot", "einsum", "fold", "gaussian_nll_loss", "grid_sample", "group_norm",
    "gru", "hinge_embedding_loss", "huber_loss", "index_reduce", "inner", "instance_norm", "interpolate", "kl_div",
    "l1_loss", "layer_norm", "linalg_norm", "linear", "local_response_norm", "log_softmax", "logcumsumexp",
    "logsumexp", "lp_pool1d", "lp_pool2d", "lstm", "margin_ranking_loss", "matmul", "max_unpool2d", "mm", "mse_loss",
    "multi_head_attention_forward", "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss",
    "mv", "nanmean", "nansum", "nll_loss", "norm", "normalize", "pairwise_distance", "poisson_nll_loss", "prod",
    "put_", "rms_norm", "rnn_relu", "rnn_tanh", "scaled_dot_product_attention", "scatter_reduce", "smooth_l1_loss",
    "soft_margin_loss", "softmax", "softmin", "std", "std_mean", "tensordot", "trace", "trapezoid",
    "triplet_margin_loss", "unfold", "var", "var_mean", "vdot", "vector_norm",
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
        call = None if func in OTHERS else CALLS.get(name)
        if call is None:
            if name.rstrip("_") in ADDS or name in ADDS or func in OTHERS:
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
    """A context in which torch's `index_add`, `scatter_add`, `index_put`, `sum`, `mean`, `amax`, `cumsum`,
    `index_select`, `gather`, `embedding` and `embedding_bag`, as functions, as methods, in place and in modules such as
    torch.nn.Embedding, add in `order`, forward and backward.

        with fpna.torch.replaced() as mode:
            loss = model(x)
        loss.backward()
        print(mode.kept)                  # calls that still add as torch does

    It applies to this thread. The backward pass may run after it. Raises ChoiceError for an unknown order.
    """
    checked_order(order)
    return Replaced(order)


def _floating(*tensors: Any) -> None:
    if any(isinstance(tensor, torch.Tensor) and tensor.is_complex() for tensor in tensors):
        raise _Kept("complex numbers")
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
    return operators.index_put(input, indices, values, True, order=order)


def _over_dims(function: Callable[..., Any]) -> Callable[..., Any]:
    """The call of torch.sum or torch.mean as one of `function`."""

    def call(order: str, input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None,
             out: Any = None) -> Any:  # fmt: skip
        _no_out(out)
        _added(input, dtype)
        return function(input, dim if axis is None else axis, keepdim, dtype=dtype, order=order)

    return call


def _added(input: Any, dtype: Any) -> None:
    """Keeps a call that adds other numbers than floating-point ones in `dtype`, or their own type."""
    if not isinstance(input, torch.Tensor):
        raise _Kept
    _floating(input if dtype is None else input.to(dtype))


def _amax(order: str, input: Any, dim: Any = (), keepdim: bool = False, *, out: Any = None) -> Any:
    _floating(input)
    _no_out(out)
    return reductions.amax(input, dim, keepdim, order=order)


def _cumsum(
    order: str, input: Any, dim: Any = None, *, dtype: Any = None, axis: Any = None, out: Any = None
) -> Any:
    _no_out(out)
    _added(input, dtype)
    if order not in OF_PREFIXES:
        raise _Kept(f"no order {order}")
    if input.device.type != "cpu":
        raise _Kept(f"a tensor on {input.device.type}")
    return reductions.cumsum(input, dim if axis is None else axis, dtype=dtype, order=order)


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
    _plain(max_norm, scale_grad_by_freq, sparse)
    return lookups.embedding(input, weight, padding_idx=padding_idx, order=order)


def _embedding_bag(
    order: str,
    input: Any,
    weight: Any,
    offsets: Any = None,
    max_norm: Any = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: Any = None,
) -> Any:
    _floating(weight)
    _plain(max_norm, scale_grad_by_freq, sparse)
    return lookups.embedding_bag(
        input, weight, offsets, mode=mode, per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset, padding_idx=padding_idx, order=order,
    )  # fmt: skip


def _plain(max_norm: Any, scale_grad_by_freq: bool, sparse: bool) -> None:
    if max_norm is not None or scale_grad_by_freq or sparse:
        raise _Kept("max_norm, scale_grad_by_freq or sparse")


def _no_out(out: Any) -> None:
    if out is not None:
        raise _Kept("out=")


CALLS: dict[str, Callable[..., Any]] = {
    "index_add": _index_add, "index_add_": _index_add, "scatter_add": _scatter_add, "scatter_add_": _scatter_add,
    "index_put": _index_put, "index_put_": _index_put, "sum": _over_dims(reductions.sum),
    "mean": _over_dims(reductions.mean), "amax": _amax, "cumsum": _cumsum, "cumsum_": _cumsum,
    "index_select": _index_select, "gather": _gather, "embedding": _embedding, "embedding_bag": _embedding_bag,
}  # fmt: skip
# They take their arguments in another order than the functions of torch.nn.functional of the same name.
OTHERS = (torch.embedding, torch.embedding_bag)
