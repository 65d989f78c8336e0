"""Operators registered in torch.library: add rows to bins, take rows from a table, add rows where they lie in a table,
means, prefix sums, products and quotients rounded once, largest rows, checks of indices.

`add_rows` and `take_rows` are each other's derivative, as are `means` and `shares`; `bag_sums` and `prefix_sums` are
their own. So gradients of any order are sums of the same kind. For torch.compile each is one opaque call.
"""

from __future__ import annotations

import numpy as np
import torch

from kernels.environment import guarded
from kernels.guarantees import known
from kernels.registry import get
from kernels.scatter import native
from kernels.scatter.elements import out_of_range
from kernels.sums import prefix

ORDERS = ("exact", "sorted", "atomic", "emulated")
DEVICES = ("cpu", "cuda")
INDICES = (torch.int64, torch.int32)
WIDE = {torch.float64: torch.float64}  # {element type: accumulator}; float32 for all other types
INTEGERS = {  # {element type: (the integers of its width, the bits of infinity)}
    torch.float64: (torch.int64, 0x7FF0000000000000),
    torch.float32: (torch.int32, 0x7F800000),
    torch.float16: (torch.int16, 0x7C00),
    torch.bfloat16: (torch.int16, 0x7F80),
}


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
        add, options = get("scatter_add", name, "native"), {"threads": _threads(name)}
    return torch.from_numpy(add(_array(rows), index.numpy(), bins, start=begin, **options))


def _threads(name: str) -> int:
    """Threads of an order. A few are seldom faster for `sorted` than one (docs/explanation/scatter.md), and slower
    where cores are busy."""
    return 1 if name == "sorted" else torch.get_num_threads()


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


# ---- add rows where they lie in a table


@torch.library.custom_op(
    "fpna::bag_sums",
    mutates_args=(),
    schema="(Tensor table, Tensor places, Tensor index, SymInt bins, str order) -> Tensor",
)
@guarded
def bag_sums(table, places, index, bins, order):
    """The sum of table[places[i]] where index[i] is b, for every bin b: (bins, columns) from a table (m, columns).

    `places` and `index` (n,). As `add_rows` of `take_rows`, without a copy of the rows on the CPU. Raises IndexError
    for the first place outside [0, m) or index outside [0, bins).
    """
    name, _ = checked_order(order)
    if table.shape[1] == 0:
        require_range(places, table.shape[0])
        return table.new_zeros((bins, 0))
    if table.device.type != "cpu" or name == "emulated":
        return torch.ops.fpna.add_rows(
            None, index, torch.ops.fpna.take_rows(table, places, order), bins, order
        )
    arrays = (_array(table.detach().contiguous()), places.contiguous().numpy(), index.contiguous().numpy())
    return torch.from_numpy(native.looked_up(*arrays, bins, name, _threads(name))).to(table.dtype)


@bag_sums.register_fake
def _(table, places, index, bins, order):
    return table.new_empty((bins, table.shape[1]))


# ---- means


@torch.library.custom_op(
    "fpna::means",
    mutates_args=(),
    schema="(Tensor table, Tensor? places, Tensor index, Tensor counts, str order) -> Tensor",
)
@guarded
def means(table, places, index, counts, order):
    """The sum of each bin divided by its count: (bins, columns) from rows (n, columns), or from table[places].

    `counts` (bins,), int64. `exact`: the exact sum is divided and rounded once, to the type of `table`, also on CUDA,
    where the rows are copied to the host. Other orders: the sum is rounded, and the quotient again; half types are
    float32 before. NaN for a count of 0.
    """
    name, _ = checked_order(order)
    if table.shape[1] == 0:
        if places is not None:
            require_range(places, table.shape[0])
        return table.new_zeros((counts.shape[0], 0))
    if name == "exact":
        rows, members, sizes = (x.detach().cpu().contiguous() for x in (table, index, counts))
        found = native.means(
            _array(rows), members.numpy(), sizes.numpy(), None if places is None else places.cpu().contiguous().numpy(),
            _threads(name),
        )  # fmt: skip
        return _tensor(found, table.dtype).to(table.device)
    wide = table.detach().to(WIDE.get(table.dtype, torch.float32))
    if places is None:
        sums = torch.ops.fpna.add_rows(None, index, wide, counts.shape[0], order)
    else:
        sums = torch.ops.fpna.bag_sums(wide, places, index, counts.shape[0], order)
    return torch.ops.fpna.quotient(sums, counts).to(table.dtype)


def _tensor(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """The same memory as a tensor: the inverse of `_array`."""
    return (
        torch.from_numpy(array.view(np.int16)).view(dtype)
        if dtype == torch.bfloat16
        else torch.from_numpy(array)
    )


@means.register_fake
def _(table, places, index, counts, order):
    return table.new_empty((counts.shape[0], table.shape[1]))


@torch.library.custom_op(
    "fpna::shares",
    mutates_args=(),
    schema="(Tensor grad, Tensor? places, Tensor index, Tensor counts, SymInt rows, str order) -> Tensor",
)
def shares(grad, places, index, counts, rows, order):
    """The derivative of `means` by its table of so many rows: of the gradient (bins, columns), divided by the counts,
    each row has that of its bin; a row of a table has the sum over its places, in `order`."""
    quotients = torch.ops.fpna.quotient(grad, counts)
    if places is None:
        return torch.ops.fpna.take_rows(quotients, index, order)
    return torch.ops.fpna.bag_sums(quotients, index, places, rows, order)


@shares.register_fake
def _(grad, places, index, counts, rows, order):
    return grad.new_empty((rows, grad.shape[1]))


# ---- prefix sums


@torch.library.custom_op("fpna::prefix_sums", mutates_args=(), schema="(Tensor rows, str order) -> Tensor")
@guarded
def prefix_sums(rows, order):
    """Row i of the result is the sum of rows 0 ... i of `rows` (n, columns); half types are added in float32.

    Raises ChoiceError for an order that kernels.sums.prefix does not have, TypeError for devices but the CPU.
    """
    if rows.device.type != "cpu":
        raise TypeError(f"fpna.torch: tensors on {rows.device.type}; prefix sums are added on cpu")
    sums = prefix.prefix_sums(_array(rows.detach()), order, threads=torch.get_num_threads())
    return torch.from_numpy(sums).to(rows.dtype)


@prefix_sums.register_fake
def _(rows, order):
    return torch.empty_like(rows, memory_format=torch.contiguous_format)


# ---- element by element, rounded once


@torch.library.custom_op("fpna::product", mutates_args=(), schema="(Tensor x, Tensor y) -> Tensor")
@guarded
def product(x, y):
    """x * y in the type of x, each rounded once; half types are multiplied in float32. y: of the shape of x, or ()."""
    return _each(np.multiply, x, y)


@torch.library.custom_op("fpna::quotient", mutates_args=(), schema="(Tensor x, Tensor count) -> Tensor")
@guarded
def quotient(x, count):
    """x (n, columns) / count, whole numbers (n,) of rows, each rounded once to the type of x, as is the number before;
    half types are divided in float32."""
    return _each(np.divide, x, count[:, None])


@torch.library.custom_op("fpna::converted", mutates_args=(), schema="(Tensor x, ScalarType dtype) -> Tensor")
@guarded
def converted(x, dtype):
    """`x` in another type, each element rounded once."""
    return x.detach().to(dtype, copy=True)


def _each(function, x, y) -> torch.Tensor:
    """function(x, y), contiguous. On the host by NumPy, since each thread of torch has its own floating-point
    environment."""
    wide = WIDE.get(x.dtype, torch.float32)
    x, y, narrow = x.detach().to(wide), y.detach().to(wide), x.dtype
    if x.device.type != "cpu":
        return (x * y if function is np.multiply else x / y).to(narrow).contiguous()
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.asarray(function(x.numpy(), y.numpy(), order="C"))).to(narrow)


@product.register_fake
def _(x, y):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@converted.register_fake
def _(x, dtype):
    return torch.empty_like(x, dtype=dtype)


@quotient.register_fake
def _(x, count):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


# ---- the largest rows


@torch.library.custom_op("fpna::most", mutates_args=(), schema="(Tensor rows, str order) -> Tensor")
@guarded
def most(rows, order):
    """The largest element of each column of `rows` (n, columns), n >= 1: (columns,). NaN wins; a zero is +0.0.

    `order` is the order of the sums of the second derivative.
    """
    wide = rows.detach().to(WIDE.get(rows.dtype, torch.float32))
    if wide.device.type != "cpu":
        return (torch.amax(wide, 0) + 0.0).to(rows.dtype)
    array = wide.numpy()
    with np.errstate(all="ignore"):
        largest = array.max(axis=0) if array.shape[1] != 1 else array.reshape(-1).max(keepdims=True)
        largest += 0.0  # removes the sign of a zero
    largest[np.isnan(largest)] = np.nan  # of no payload
    return torch.from_numpy(largest).to(rows.dtype)


@most.register_fake
def _(rows, order):
    return rows.new_empty((rows.shape[1],))


@torch.library.custom_op("fpna::equal", mutates_args=(), schema="(Tensor rows, Tensor largest) -> Tensor")
@guarded
def equal(rows, largest):
    """Where `rows` (n, columns) equal `largest` (columns,), as bool. NaN equals nothing; the zeros are equal."""
    if rows.device.type != "cpu":
        return (rows == largest).contiguous()
    wide = WIDE.get(rows.dtype, torch.float32)
    with np.errstate(all="ignore"):
        found = np.equal(rows.detach().to(wide).numpy(), largest.detach().to(wide).numpy(), order="C")
        return torch.from_numpy(found)


@equal.register_fake
def _(rows, largest):
    return torch.empty_like(rows, dtype=torch.bool, memory_format=torch.contiguous_format)


def in_integers(x: torch.Tensor) -> torch.Tensor:
    """Integers in the order of the numbers of `x`, for comparisons in any floating-point environment. Both zeros are 0;
    NaN is the largest integer."""
    integer, infinity = INTEGERS[x.dtype]
    bits = x.contiguous().view(integer)
    magnitude = bits & torch.iinfo(integer).max
    signed = torch.where(bits < 0, -magnitude, magnitude)
    return torch.where(magnitude > infinity, torch.iinfo(integer).max, signed)


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


def _keep_for_bags(ctx, inputs, output):
    table, places, index, _, order = inputs
    ctx.save_for_backward(places, index)
    ctx.order, ctx.rows = order, table.shape[0]


def _derivative_of_bags(ctx, grad):
    places, index = ctx.saved_tensors
    return torch.ops.fpna.bag_sums(grad, index, places, ctx.rows, ctx.order), None, None, None, None


def _keep_for_means(ctx, inputs, output):
    table, places, index, counts, order = inputs
    ctx.save_for_backward(places, index, counts)
    ctx.order, ctx.rows = order, table.shape[0]


def _derivative_of_means(ctx, grad):
    return torch.ops.fpna.shares(grad, *ctx.saved_tensors, ctx.rows, ctx.order), None, None, None, None


def _keep_for_shares(ctx, inputs, output):
    _, places, index, counts, _, order = inputs
    ctx.save_for_backward(places, index, counts)
    ctx.order = order


def _derivative_of_shares(ctx, grad):
    return torch.ops.fpna.means(grad, *ctx.saved_tensors, ctx.order), None, None, None, None, None


def _keep_for_prefixes(ctx, inputs, output):
    ctx.order = inputs[1]


def _derivative_of_prefixes(ctx, grad):
    return torch.ops.fpna.prefix_sums(grad.flip(0), ctx.order).flip(0), None


def _keep_both(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _derivative_of_product(ctx, grad):
    x, y = ctx.saved_tensors
    of = torch.ops.fpna.product
    return (of(grad, y) if ctx.needs_input_grad[0] else None), (
        of(grad, x) if ctx.needs_input_grad[1] else None
    )


def _derivative_of_quotient(ctx, grad):
    return torch.ops.fpna.quotient(grad, ctx.saved_tensors[1]), None


def _keep_the_type(ctx, inputs, output):
    ctx.type = inputs[0].dtype


def _derivative_of_conversion(ctx, grad):
    return torch.ops.fpna.converted(grad, ctx.type), None


def _keep_for_most(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], output)
    ctx.order = inputs[1]


def _derivative_of_most(ctx, grad):
    """A share of the gradient for each element that equals the largest; NaN for all where that is NaN, as in torch."""
    rows, largest = ctx.saved_tensors
    equal = torch.ops.fpna.equal(rows.detach(), largest.detach())
    shares = torch.ops.fpna.quotient(grad[:, None], equal.sum(0)).reshape(1, -1)
    everywhere = torch.zeros(rows.shape[0], dtype=torch.int64, device=rows.device)
    taken = torch.ops.fpna.take_rows(shares, everywhere, ctx.order)
    return torch.ops.fpna.product(taken, equal.to(grad.dtype)), None


add_rows.register_autograd(_derivative_of_add, setup_context=_keep_for_add)
take_rows.register_autograd(_derivative_of_take, setup_context=_keep_for_take)
bag_sums.register_autograd(_derivative_of_bags, setup_context=_keep_for_bags)
means.register_autograd(_derivative_of_means, setup_context=_keep_for_means)
shares.register_autograd(_derivative_of_shares, setup_context=_keep_for_shares)
prefix_sums.register_autograd(_derivative_of_prefixes, setup_context=_keep_for_prefixes)
product.register_autograd(_derivative_of_product, setup_context=_keep_both)
quotient.register_autograd(_derivative_of_quotient, setup_context=_keep_both)
converted.register_autograd(_derivative_of_conversion, setup_context=_keep_the_type)
most.register_autograd(_derivative_of_most, setup_context=_keep_for_most)
