"""Operators registered in torch.library: add rows to bins, take rows from a table, check indices.

`add_rows` and `take_rows` are each other's derivative, so gradients of any order are sums of the same kind. For
torch.compile each is one opaque call.
"""

from __future__ import annotations

import numpy as np
import torch

import kernels.scatter  # noqa: F401 - registers its variants
from kernels.environment import guarded
from kernels.guarantees import known
from kernels.registry import get
from kernels.scatter.elements import out_of_range

ORDERS = ("exact", "sorted", "atomic", "emulated")
DEVICES = ("cpu", "cuda")
INDICES = (torch.int64, torch.int32)
WIDE = {torch.float64: torch.float64}  # {element type: accumulator}; float32 for all other types


def checked_order(order: str) -> tuple[str, int]:
    """(name, seed) of `order`, which is one of ORDERS, or `emulated:SEED`.

    Raises ChoiceError for another name, ValueError for a wrong seed.
    """
    name, colon, seed = order.partition(":")
    known("order of additions", name, ORDERS)
    if colon and not (name == "emulated" and seed.isdecimal()):
        raise ValueError(f"order {order!r}: `emulated:SEED` takes a seed of 0 or more, the others none")
    return name, int(seed or 0)


# ---- add rows to bins


@torch.library.custom_op(
    "fpna::add_rows",
    mutates_args=(),
    schema="(Tensor? start, Tensor index, Tensor rows, SymInt bins, str order) -> Tensor",
)
@guarded
def add_rows(start, index, rows, bins, order):
    """start[b] + the sum of rows[i] where index[i] is b, for every bin b: (bins, columns) from rows (n, columns).

    `start`: (bins, columns), or None for +0.0. Half types, with `start`, are added in float32 and rounded at the end.
    Raises IndexError for the first index outside [0, bins), TypeError for unsupported types and devices.
    """
    if rows.device.type not in DEVICES:
        raise TypeError(f"fpna.torch: tensors on {rows.device.type}; it adds on {', '.join(DEVICES)}")
    n, columns = rows.shape
    if columns == 0:
        return rows.new_zeros((bins, 0))
    flat = (n,) if columns == 1 else (n, columns)
    if start is not None:
        start = start.detach().reshape((bins, *flat[1:])).contiguous()
    add = _on_device if rows.is_cuda else _on_host
    sums = add(start, index.detach().contiguous(), rows.detach().reshape(flat).contiguous(), bins, order)
    return sums.reshape(bins, columns).to(rows.dtype)


@add_rows.register_fake
def _(start, index, rows, bins, order):
    return rows.new_empty((bins, rows.shape[1]))


def _on_host(start, index, rows, bins, order) -> torch.Tensor:
    name, seed = checked_order(order)
    begin = None if start is None else start.to(WIDE.get(rows.dtype, torch.float32)).numpy()
    if name == "emulated":
        add, options = get("scatter_add", "atomic", "emulated"), {"seed": seed}
    else:
        # A few threads are seldom faster for `sorted` than one (docs/explanation/scatter.md), and slower where cores
        # are busy.
        threads = 1 if name == "sorted" else torch.get_num_threads()
        add, options = get("scatter_add", name, "native"), {"threads": threads}
    return torch.from_numpy(add(_array(rows), index.numpy(), bins, start=begin, **options))


def _array(tensor: torch.Tensor) -> np.ndarray:
    """The same memory as an array of NumPy."""
    if tensor.dtype != torch.bfloat16:
        return tensor.numpy()
    import ml_dtypes

    return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def _on_device(start, index, rows, bins, order) -> torch.Tensor:
    """Adds by CuPy's kernels, on torch's stream and in its memory; copies `start` in front of the rows."""
    import cupy

    name, _ = checked_order(order)
    if name == "emulated":
        raise TypeError(
            "fpna.torch: the order `emulated` is for tensors on cpu; on cuda `atomic` is the real one"
        )
    if start is not None:
        rows = torch.cat([start, rows])
        index = torch.cat([torch.arange(bins, dtype=index.dtype, device=index.device), index])
    options = {}
    if rows.dtype == torch.bfloat16:
        rows, options = rows.view(torch.uint16), {"dtype": "bfloat16"}
    stream = torch.cuda.current_stream(rows.device).cuda_stream
    with cupy.cuda.Device(rows.device.index), cupy.cuda.ExternalStream(stream):
        add = get("scatter_add", name, "cupy")
        return torch.from_dlpack(add(cupy.from_dlpack(rows), cupy.from_dlpack(index), bins, **options))


@torch.library.custom_op("fpna::scaled", mutates_args=(), schema="(Tensor x, float factor) -> Tensor")
@guarded
def scaled(x, factor):
    """x * factor, rounded once to the type of x (half types in float32 first), as torch multiplies by a number.

    On the host NumPy multiplies, since each thread of torch has its own floating-point environment.
    """
    if x.device.type != "cpu":
        return x * factor
    wide = WIDE.get(x.dtype, torch.float32)
    array = x.detach().to(wide).numpy()
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.asarray(array * array.dtype.type(factor))).to(x.dtype)


@scaled.register_fake
def _(x, factor):
    return torch.empty_like(x)


# ---- take rows from a table


@torch.library.custom_op(
    "fpna::take_rows", mutates_args=(), schema="(Tensor table, Tensor index, str order) -> Tensor"
)
def take_rows(table, index, order):
    """table[index[i]] for every i: (n, columns) from a table (bins, columns).

    `order` is the order of the gradient's sums. Raises IndexError for the first index outside [0, bins).
    """
    table, index = table.detach(), index.detach()
    bins, columns = table.shape
    if table.is_cuda:  # on CUDA a wrong index would end the process
        require_range(index, bins)
    try:
        taken = torch.index_select(table.reshape(-1) if columns == 1 else table, 0, index)
    except (IndexError, RuntimeError):
        require_range(index, bins)
        raise
    return taken.reshape(len(index), columns)


@take_rows.register_fake
def _(table, index, order):
    return table.new_empty((index.shape[0], table.shape[1]))


# ---- indices


@torch.library.custom_op(
    "fpna::within", mutates_args=(), schema="(Tensor index, SymInt bins, bool wraps) -> Tensor"
)
def within(index, bins, wraps):
    """A copy of `index` as int64 in [0, bins); `wraps`: -1 is the last bin, as in indexing.

    Raises IndexError for the first index outside, with its place.
    """
    require_range(index, bins, -bins if wraps else 0)
    wide = index.to(torch.int64, copy=True)
    return torch.where(wide < 0, wide + bins, wide) if wraps else wide


@within.register_fake
def _(index, bins, wraps):
    return torch.empty_like(index, dtype=torch.int64)


@torch.library.custom_op("fpna::segments", mutates_args=(), schema="(Tensor offsets, SymInt n) -> Tensor")
def segments(offsets, n):
    """The segment of each of n rows, int64 (n,): segment b has the rows offsets[b] ... offsets[b + 1] - 1.

    Raises ValueError unless offsets ascend from 0 to n.
    """
    counts = torch.diff(offsets)
    if int(offsets[0]) != 0 or int(offsets[-1]) != n or bool((counts < 0).any()):
        raise ValueError(f"fpna.torch: offsets must ascend from 0 to the {n} rows of x")
    return torch.repeat_interleave(torch.arange(len(counts), device=offsets.device), counts, output_size=n)


@segments.register_fake
def _(offsets, n):
    return offsets.new_empty((n,), dtype=torch.int64)


def require_range(index: torch.Tensor, bins: int, least: int = 0) -> None:
    """Raises IndexError for the first element of `index` outside [least, bins)."""
    if index.numel() == 0:
        return
    low, high = torch.aminmax(index)
    if low < least or high >= bins:
        flat = index.reshape(-1)
        place = int(((flat < least) | (flat >= bins)).to(torch.uint8).argmax())
        if least:
            raise IndexError(
                f"index[{place}] is {int(flat[place])}, but {bins} bins allow {least} ... {bins - 1}"
            )
        raise out_of_range(int(flat[place]), place, bins)


# ---- derivatives


def _keep_for_add(ctx, inputs, output):
    start, index, _, _, order = inputs
    ctx.save_for_backward(index)
    ctx.order, ctx.begins = order, start is not None


def _derivative_of_add(ctx, grad):
    (index,) = ctx.saved_tensors
    rows = torch.ops.fpna.take_rows(grad, index, ctx.order) if ctx.needs_input_grad[2] else None
    return (grad if ctx.begins else None), None, rows, None, None


def _keep_for_take(ctx, inputs, output):
    table, index, order = inputs
    ctx.save_for_backward(index)
    ctx.order, ctx.bins = order, table.shape[0]


def _derivative_of_take(ctx, grad):
    (index,) = ctx.saved_tensors
    return torch.ops.fpna.add_rows(None, index, grad, ctx.bins, ctx.order), None, None


def _keep_for_scaled(ctx, inputs, output):
    _, ctx.factor = inputs


def _derivative_of_scaled(ctx, grad):
    return torch.ops.fpna.scaled(grad, ctx.factor), None


add_rows.register_autograd(_derivative_of_add, setup_context=_keep_for_add)
take_rows.register_autograd(_derivative_of_take, setup_context=_keep_for_take)
scaled.register_autograd(_derivative_of_scaled, setup_context=_keep_for_scaled)
