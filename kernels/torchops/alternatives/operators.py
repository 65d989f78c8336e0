"""Operators of PyTorch such as torch.index_add with a guarantee: sums in a chosen order, forward and backward.

`order` is `exact` (correctly rounded) or `sorted` (by ascending place: guarantee `run`), as in kernels.scatter, which
has the reasons. `atomic` and `emulated:SEED` promise nothing and show the effect of chance. The order holds for sums of
the forward pass, of the backward pass, and of gradients of gradients.

All operators use `add_rows` and `take_rows` (kernels/torchops/alternatives/opaque.py). Sums and maxima over dims are in
reductions.py, embeddings in lookups.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kernels.torchops.alternatives.opaque import checked_order
from kernels.torchops.alternatives.operands import (
    add,
    along,
    cast,
    dimension,
    expanded,
    floating,
    integers,
    same_type,
    take,
)  # fmt: skip

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
    dim, index = along(what, input, dim, index, order)
    same_type(what, input, source)
    source = source.reshape(1) if source.ndim == 0 else source
    whole = input.reshape(1) if input.ndim == 0 else input
    expected = (*whole.shape[:dim], len(index), *whole.shape[dim + 1 :])
    if tuple(source.shape) != expected:
        raise ValueError(f"fpna.torch.{what}: source has shape {tuple(source.shape)}; {expected} is expected")
    if alpha != 1:
        factor = torch.full((), float(alpha), dtype=torch.float64, device=source.device)
        source = torch.ops.fpna.product(source, factor)
    return add(whole, dim, index, source, order).reshape(input.shape)


def index_select(input: torch.Tensor, dim: int, index: torch.Tensor, *, order: str = ORDER) -> torch.Tensor:
    """torch.index_select; where an index repeats, the gradient adds in `order`."""
    dim, index = along("index_select", input, dim, index, order)
    whole = input.reshape(1) if input.ndim == 0 else input
    if input.ndim == 0 and len(index) != 1:
        raise IndexError(f"fpna.torch.index_select: {len(index)} indices of a number; 1 is expected")
    taken = take(whole, dim, index, order)
    return taken.reshape(()) if input.ndim == 0 else taken


def scatter_add(
    input: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, *, order: str = ORDER
) -> torch.Tensor:
    """torch.scatter_add: src[i, j] added to input[index[i, j], j] (dim 0), for all places of `index`.

    An index that is expanded along all other dimensions, as for messages with several features, adds whole rows.
    Raises as `index_add`.
    """
    what = "scatter_add"
    input, src = cast(what, input, src)
    whole, index, dim = _elementwise(what, input, index, dim, order)
    same_type(what, input, src)
    src = src.reshape(1) if src.ndim == 0 else src
    if index.numel() == 0:
        return add(whole.reshape(-1), 0, index.reshape(-1), src.reshape(-1)[:0], order).reshape(input.shape)
    if len(src.shape) != index.ndim or any(i > s for i, s in zip(index.shape, src.shape, strict=True)):
        raise ValueError(
            f"fpna.torch.{what}: index has shape {tuple(index.shape)}, more than that of src, {tuple(src.shape)}"
        )
    if src.shape != index.shape:
        src = src[tuple(slice(n) for n in index.shape)]
    if _whole_rows(whole, index, dim):
        return add(whole, dim, _one(index, dim), src, order).reshape(input.shape)
    places = _linear(whole, index, dim).reshape(-1)
    return add(whole.reshape(-1), 0, places, src.reshape(-1), order).reshape(input.shape)


def gather(input: torch.Tensor, dim: int, index: torch.Tensor, *, order: str = ORDER) -> torch.Tensor:
    """torch.gather: input[index[i, j], j] (dim 0); where an index repeats, the gradient adds in `order`."""
    whole, places, dim = _elementwise("gather", input, index, dim, order)
    if index.numel() == 0:
        return take(whole.reshape(-1), 0, index.reshape(-1), order).reshape(index.shape)
    if _whole_rows(whole, places, dim):
        return take(whole, dim, _one(places, dim), order).reshape(index.shape)
    linear = _linear(whole, places, dim).reshape(-1)
    return take(whole.reshape(-1), 0, linear, order).reshape(index.shape)


def index_put(
    input: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = True,
    *,
    order: str = ORDER,
) -> torch.Tensor:
    """torch.index_put(accumulate=True): `values` added at input[indices]; negative indices count from the end.

    `indices`: an integer tensor or None (all of that dimension) for each of the first dimensions, or a mask for as many
    dimensions as it has. They are broadcast together; `values` are broadcast to the shape of input[indices]. Raises as
    `index_add`.
    """
    what = "index_put"
    if not accumulate:
        raise ValueError(
            f"fpna.torch.{what} always adds: use torch.index_put to write, where the last of several writers wins"
        )
    input, values = cast(what, input, values)
    same_type(what, input, values)
    checked_order(order)
    indices = _without_masks(what, input, indices)
    if not 0 < len(indices) <= input.ndim:
        raise IndexError(f"fpna.torch.{what}: {len(indices)} indices for a tensor of {input.ndim} dimensions")
    dims = [d for d, index in enumerate(indices) if index is not None]
    given = [integers(what, index) for index in indices if index is not None]
    if not dims:
        raise ValueError(f"fpna.torch.{what}: at least one index must be a tensor")
    try:
        shape = torch.broadcast_shapes(*(index.shape for index in given))
    except RuntimeError:
        shapes = ", ".join(str(tuple(index.shape)) for index in given)
        raise IndexError(f"fpna.torch.{what}: indices of shapes {shapes} cannot be broadcast") from None
    rest = [d for d in range(input.ndim) if d not in dims]
    places = _within(given[0], input.shape[dims[0]], True)
    for d, index in zip(dims[1:], given[1:], strict=True):
        places = places * input.shape[d] + _within(index, input.shape[d], True)
    # The place of the indexed dimensions in input[indices]: that of the first if they are neighbours, else the front.
    first = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    sizes = [input.shape[d] for d in rest]
    values = expanded(what, values, (*sizes[:first], *shape, *sizes[first:]), order)
    moved = values.movedim(tuple(range(first, first + len(shape))), tuple(range(len(shape))))
    front = input.permute(*dims, *rest)
    bins = math.prod([input.shape[d] for d in dims])
    sums = add(
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


def _without_masks(what: str, input: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> list:
    """`indices`; a mask is replaced by the places where it is true."""
    found: list[torch.Tensor | None] = []
    for index in indices:
        if index is None or index.dtype != torch.bool:
            found.append(index)
            continue
        covered = input.shape[len(found) : len(found) + index.ndim]
        if index.ndim == 0 or index.shape != covered:
            raise IndexError(
                f"fpna.torch.{what}: a mask of shape {tuple(index.shape)} for dimensions of shape {tuple(covered)}"
            )
        found += index.nonzero(as_tuple=True)
    return found


# ---- places


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
    plain = type(index) is torch.Tensor and not index.is_meta and not torch.compiler.is_compiling()
    if plain and index.dtype == torch.int64 and index.numel():
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


def _elementwise(what: str, input: torch.Tensor, index: torch.Tensor, dim: int, order: str):
    """(input, index, dim), after checks: an index that is not empty has as many dimensions as input, at least one; dim
    counts from 0."""
    checked_order(order)
    floating(what, input)
    index = integers(what, index)
    whole = input.reshape(1) if input.ndim == 0 else input
    index = index.reshape(1) if index.ndim == 0 else index
    dim = dimension(what, input, dim)
    wrong = index.ndim != whole.ndim or any(
        i > w for d, (i, w) in enumerate(zip(index.shape, whole.shape, strict=True)) if d != dim
    )
    if wrong and index.numel():
        raise ValueError(
            f"fpna.torch.{what}: index has shape {tuple(index.shape)}; as many dimensions as the input of shape "
            f"{tuple(whole.shape)} are expected, none longer except dim {dim}"
        )
    return whole, index, dim
