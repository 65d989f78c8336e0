"""Operators of PyTorch such as torch.index_add with a guarantee: sums in a chosen order, forward and backward.

`order` is `exact` (correctly rounded) or `sorted` (by ascending place: guarantee `run`), as in kernels.scatter, which
has the reasons. `atomic` and `emulated:SEED` promise nothing and show the effect of chance. The order holds for sums of
the forward pass, of the backward pass, and of gradients of gradients.

All operators use `add_rows` and `take_rows` (kernels/torchops/alternatives/opaque.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kernels.torchops.alternatives.opaque import INDICES, checked_order

ORDER = "exact"


def index_add(
    input: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    *,
    alpha: float = 1,
    order: str = ORDER,
) -> torch.Tensor:
    """torch.index_add: `alpha` times the slices of `source` along `dim` added to those of `input` at `index`.

    `input` counts as the first term of each of its elements. Raises IndexError for the first index that is out of
    range or, as in torch, negative; TypeError and ValueError for types and shapes that do not fit.
    """
    what = "index_add"
    dim, index = _along(what, input, dim, index, order)
    _same_type(what, input, source)
    source = source.reshape(1) if source.ndim == 0 else source
    whole = input.reshape(1) if input.ndim == 0 else input
    expected = (*whole.shape[:dim], len(index), *whole.shape[dim + 1 :])
    if tuple(source.shape) != expected:
        raise ValueError(f"fpna.torch.{what}: source has shape {tuple(source.shape)}; {expected} is expected")
    if alpha != 1:
        source = torch.ops.fpna.scaled(source, float(alpha))
    return _add(whole, dim, index, source, order).reshape(input.shape)


def index_select(input: torch.Tensor, dim: int, index: torch.Tensor, *, order: str = ORDER) -> torch.Tensor:
    """torch.index_select; where an index repeats, the gradient adds in `order`."""
    dim, index = _along("index_select", input, dim, index, order)
    whole = input.reshape(1) if input.ndim == 0 else input
    if input.ndim == 0 and len(index) != 1:
        raise IndexError(f"fpna.torch.index_select: {len(index)} indices of a number; 1 is expected")
    taken = _take(whole, dim, index, order)
    return taken.reshape(()) if input.ndim == 0 else taken


def scatter_add(
    input: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, *, order: str = ORDER
) -> torch.Tensor:
    """torch.scatter_add: src[i, j] added to input[index[i, j], j] (dim 0), for all places of `index`.

    An index that is expanded along all other dimensions, as for messages with several features, adds whole rows.
    Raises as `index_add`.
    """
    what = "scatter_add"
    _same_type(what, input, src)
    whole, index, dim = _elementwise(what, input, index, dim, order)
    src = src.reshape(1) if src.ndim == 0 else src
    if any(i > s for i, s in zip(index.shape, src.shape, strict=True)):
        raise ValueError(
            f"fpna.torch.{what}: index has shape {tuple(index.shape)}, more than that of src, {tuple(src.shape)}"
        )
    src = src[tuple(slice(n) for n in index.shape)]
    if _whole_rows(whole, index, dim):
        return _add(whole, dim, _one(index, dim), src, order).reshape(input.shape)
    places = _linear(whole, index, dim).reshape(-1)
    return _add(whole.reshape(-1), 0, places, src.reshape(-1), order).reshape(input.shape)


def gather(input: torch.Tensor, dim: int, index: torch.Tensor, *, order: str = ORDER) -> torch.Tensor:
    """torch.gather: input[index[i, j], j] (dim 0); where an index repeats, the gradient adds in `order`."""
    whole, places, dim = _elementwise("gather", input, index, dim, order)
    if _whole_rows(whole, places, dim):
        return _take(whole, dim, _one(places, dim), order).reshape(index.shape)
    linear = _linear(whole, places, dim).reshape(-1)
    return _take(whole.reshape(-1), 0, linear, order).reshape(index.shape)


def embedding(
    index: torch.Tensor, weight: torch.Tensor, *, padding_idx: int | None = None, order: str = ORDER
) -> torch.Tensor:
    """torch.nn.functional.embedding: rows of `weight` (rows, features) by an index of any shape.

    The gradient of `weight` is added in `order`; row `padding_idx` has gradient zero. Raises ValueError for a table
    without two dimensions, and for a `padding_idx` that is not a row of it.
    """
    if weight.ndim != 2:
        raise ValueError(
            f"fpna.torch.embedding: weight has shape {tuple(weight.shape)}; (rows, features) is expected"
        )
    if padding_idx and not -len(weight) <= padding_idx < len(weight):  # torch accepts 0 without rows
        raise ValueError(
            f"fpna.torch.embedding: padding_idx {padding_idx} is not one of the {len(weight)} rows of weight"
        )
    _, flat = _along("embedding", weight, 0, index.reshape(-1), order)
    taken = _take(weight, 0, flat, order)
    if padding_idx is not None and len(weight):
        padding = padding_idx % len(weight)
        taken = torch.where((flat == padding)[:, None], weight[padding].detach(), taken)
    return taken.reshape(*index.shape, *weight.shape[1:])


def index_put(
    input: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = True,
    *,
    order: str = ORDER,
) -> torch.Tensor:
    """torch.index_put(accumulate=True): `values` added at input[indices]; negative indices count from the end.

    `indices`: an integer tensor or None (all of that dimension) for each of the first dimensions; give a mask as
    `mask.nonzero(as_tuple=True)`. `values` may be broadcast. Raises as `index_add`.
    """
    what = "index_put"
    if not accumulate:
        raise ValueError(
            f"fpna.torch.{what} always adds: use torch.index_put to write, where the last of several writers wins"
        )
    _same_type(what, input, values)
    checked_order(order)
    if not 0 < len(indices) <= input.ndim:
        raise IndexError(f"fpna.torch.{what}: {len(indices)} indices for a tensor of {input.ndim} dimensions")
    dims = [d for d, index in enumerate(indices) if index is not None]
    given = [_integers(what, index) for index in indices if index is not None]
    if not dims:
        raise ValueError(f"fpna.torch.{what}: at least one index must be a tensor")
    shape = torch.broadcast_shapes(*(index.shape for index in given))
    rest = [d for d in range(input.ndim) if d not in dims]
    places = _within(given[0], input.shape[dims[0]], True)
    for d, index in zip(dims[1:], given[1:], strict=True):
        places = places * input.shape[d] + _within(index, input.shape[d], True)
    # The place of the indexed dimensions in input[indices]: that of the first if they are neighbours, else the front.
    first = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    sizes = [input.shape[d] for d in rest]
    values = _expanded(values, (*sizes[:first], *shape, *sizes[first:]), order)
    moved = values.movedim(tuple(range(first, first + len(shape))), tuple(range(len(shape))))
    front = input.permute(*dims, *rest)
    bins = math.prod([input.shape[d] for d in dims])
    sums = _add(
        front.reshape(bins, -1) if input.numel() else front.reshape(bins, math.prod(sizes)),
        0,
        places.expand(shape).reshape(-1),
        moved.reshape(math.prod(shape), math.prod(sizes)),
        order,
    )
    back = [0] * input.ndim
    for k, d in enumerate([*dims, *rest]):
        back[d] = k
    return sums.reshape(front.shape).permute(back)


def sum(
    x: torch.Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, order: str = ORDER
) -> torch.Tensor:
    """torch.sum over one, several or all dimensions, in the type of x."""
    checked_order(order)
    _float("sum", x)
    named = () if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    dims = [_dimension("sum", x, d) for d in named or range(x.ndim)]  # dim=() means all, as in torch
    if len(set(dims)) < len(dims):
        raise ValueError(f"fpna.torch.sum: dim {dim} names a dimension twice")
    if x.ndim == 0:
        return sum(x.reshape(1), order=order)
    rest = [d for d in range(x.ndim) if d not in dims]
    sizes = [x.shape[d] for d in rest]
    count = math.prod([x.shape[d] for d in dims])
    rows = x.permute(*dims, *rest).reshape(count, math.prod(sizes))
    index = torch.zeros(count, dtype=torch.int32, device=x.device)
    total = torch.ops.fpna.add_rows(None, index, rows, 1, order)
    return total.reshape([1 if d in dims else x.shape[d] for d in range(x.ndim)] if keepdim else sizes)


def segment_sum(
    x: torch.Tensor,
    *,
    offsets: torch.Tensor | None = None,
    index: torch.Tensor | None = None,
    bins: int | None = None,
    order: str = ORDER,
) -> torch.Tensor:
    """Sums over segments of the rows of x, (segments, ...): by `offsets` (segments + 1,), or by `index` and `bins`.

    Segment b is x[offsets[b]:offsets[b + 1]], or the rows whose index is b, in any order. Empty ones are zero.
    """
    what = "segment_sum"
    if (offsets is None) == (index is None) or (index is None) != (bins is None):
        raise ValueError(f"fpna.torch.{what} takes either offsets, or index and bins")
    _float(what, x)
    if offsets is not None:
        if offsets.ndim != 1 or len(offsets) == 0:
            raise ValueError(f"fpna.torch.{what}: offsets are (segments + 1,), not {tuple(offsets.shape)}")
        bins, index = len(offsets) - 1, torch.ops.fpna.segments(_integers(what, offsets), len(x))
    assert index is not None and bins is not None
    empty = x.new_zeros((bins, *x.shape[1:]))
    _, index = _along(what, empty, 0, index, order)
    if len(index) != len(x):
        raise ValueError(f"fpna.torch.{what}: {len(index)} indices for {len(x)} rows")
    return _rows_added(None, index, x, empty.shape, order)


# ---- building blocks


def _add(
    whole: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, order: str
) -> torch.Tensor:
    """The slices of `source` along `dim`, added to those of `whole`."""
    front = whole.movedim(dim, 0)
    return _rows_added(front, index, source.movedim(dim, 0), front.shape, order).movedim(0, dim)


def _rows_added(start, index, source, shape, order: str) -> torch.Tensor:
    columns = math.prod(shape[1:])
    rows = source.reshape(source.shape[0], columns)
    begin = None if start is None else start.reshape(shape[0], columns)
    return torch.ops.fpna.add_rows(begin, index, rows, shape[0], order).reshape(shape)


def _take(whole: torch.Tensor, dim: int, index: torch.Tensor, order: str) -> torch.Tensor:
    """Slices of `whole` along `dim`."""
    front = whole.movedim(dim, 0)
    rows = front.reshape(front.shape[0], math.prod(front.shape[1:]))
    taken = torch.ops.fpna.take_rows(rows, index, order)
    return taken.reshape(index.shape[0], *front.shape[1:]).movedim(0, dim)


def _expanded(values: torch.Tensor, shape: tuple[int, ...], order: str) -> torch.Tensor:
    """`values` broadcast to `shape`, so that their gradient is added in `order`."""
    torch.broadcast_shapes(values.shape, shape)
    values = values.reshape((1,) * (len(shape) - values.ndim) + tuple(values.shape))
    for d, (have, want) in enumerate(zip(values.shape, shape, strict=True)):
        if have != want:
            values = _take(values, d, torch.zeros(want, dtype=torch.int32, device=values.device), order)
    return values


def _whole_rows(whole: torch.Tensor, index: torch.Tensor, dim: int) -> bool:
    """Whether `index` is the same for all elements of a slice along `dim`, and covers it."""
    others = [d for d in range(index.ndim) if d != dim]
    return all(
        index.shape[d] == whole.shape[d] and (index.stride(d) == 0 or index.shape[d] == 1) for d in others
    )


def _one(index: torch.Tensor, dim: int) -> torch.Tensor:
    """The index along `dim`, of an index that is constant along all other dimensions."""
    for d in reversed(range(index.ndim)):
        if d != dim:
            index = index.select(d, 0) if index.shape[d] else index.sum(d)
    return index


def _within(index: torch.Tensor, bins: int, wraps: bool) -> torch.Tensor:
    """`index`, checked to be in [0, bins): itself if its values may be read now, else a checked copy."""
    if not torch.compiler.is_compiling() and index.dtype == torch.int64 and index.numel():
        low, high = torch.aminmax(index)
        if low >= 0 and high < bins:
            return index
    return torch.ops.fpna.within(index, bins, wraps)


def _linear(whole: torch.Tensor, index: torch.Tensor, dim: int) -> torch.Tensor:
    """Places in whole.reshape(-1) of the elements that `index` selects along `dim`."""
    places: torch.Tensor | int = 0
    for d in range(whole.ndim):
        if d == dim:
            along = _within(index, whole.shape[d], False)
        else:
            along = torch.arange(index.shape[d], device=index.device)
            along = along.reshape([-1 if k == d else 1 for k in range(whole.ndim)])
        places = places * whole.shape[d] + along
    assert isinstance(places, torch.Tensor)
    return places


# ---- checks


def _along(
    what: str, input: torch.Tensor, dim: int, index: torch.Tensor, order: str
) -> tuple[int, torch.Tensor]:
    """(dim counted from 0, index as (n,)), after checks."""
    checked_order(order)
    _float(what, input)
    index = _integers(what, index)
    if index.ndim > 1:
        raise ValueError(f"fpna.torch.{what}: index has shape {tuple(index.shape)}; (n,) is expected")
    return _dimension(what, input, dim), index.reshape(-1)


def _elementwise(what: str, input: torch.Tensor, index: torch.Tensor, dim: int, order: str):
    """(input, index, dim), after checks: input and index have equally many dimensions, at least one; dim counts from
    0."""
    checked_order(order)
    _float(what, input)
    index = _integers(what, index)
    whole = input.reshape(1) if input.ndim == 0 else input
    index = index.reshape(1) if index.ndim == 0 else index
    dim = _dimension(what, input, dim)
    wrong = index.ndim != whole.ndim or any(
        i > w for d, (i, w) in enumerate(zip(index.shape, whole.shape, strict=True)) if d != dim
    )
    if wrong:
        raise ValueError(
            f"fpna.torch.{what}: index has shape {tuple(index.shape)}; as many dimensions as the input of shape "
            f"{tuple(whole.shape)} are expected, none longer except dim {dim}"
        )
    return whole, index, dim


def _dimension(what: str, x: torch.Tensor, dim: int) -> int:
    most = max(x.ndim, 1)
    if not -most <= dim < most:
        raise IndexError(f"fpna.torch.{what}: dim {dim} of a tensor of shape {tuple(x.shape)}")
    return dim % most


def _float(what: str, x: torch.Tensor) -> None:
    if x.dtype not in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        raise TypeError(
            f"fpna.torch.{what} cannot add {x.dtype}: float64, float32, float16 or bfloat16 are expected"
        )


def _same_type(what: str, x: torch.Tensor, y: torch.Tensor) -> None:
    _float(what, x)
    if x.dtype != y.dtype or x.device != y.device:
        raise TypeError(
            f"fpna.torch.{what}: {y.dtype} on {y.device} cannot be added to {x.dtype} on {x.device}"
        )


def _integers(what: str, index: torch.Tensor) -> torch.Tensor:
    if index.dtype not in INDICES:
        raise TypeError(
            f"fpna.torch.{what}: an index of {index.dtype}; torch.int64 or torch.int32 is expected, and a mask as "
            "mask.nonzero(as_tuple=True)"
        )
    return index
