"""torch.nn.functional.embedding and embedding_bag: lookups whose sums, forward and backward, have a chosen order."""

from __future__ import annotations

import torch

from kernels.guarantees import known
from kernels.torchops.alternatives.opaque import in_integers
from kernels.torchops.alternatives.operands import (
    along,
    expanded,
    integers,
    rows_added,
    same_type,
    take,
)
from kernels.torchops.alternatives.operators import ORDER, gather

MODES = ("sum", "mean", "max")


def embedding(
    index: torch.Tensor, weight: torch.Tensor, *, padding_idx: int | None = None, order: str = ORDER
) -> torch.Tensor:
    """torch.nn.functional.embedding: rows of `weight` (rows, features) by an index of any shape.

    The gradient of `weight` is added in `order`; row `padding_idx` has gradient zero. Raises ValueError for a table
    without two dimensions, and for a `padding_idx` that is not a row of it.
    """
    what = "embedding"
    padding = _padding(what, weight, padding_idx)
    _, flat = along(what, weight, 0, index.reshape(-1), order)
    taken = take(weight, 0, flat, order)
    if padding is not None:
        taken = torch.where((flat == padding)[:, None], weight[padding].detach(), taken)
    return taken.reshape(*index.shape, *weight.shape[1:])


def embedding_bag(
    index: torch.Tensor,
    weight: torch.Tensor,
    offsets: torch.Tensor | None = None,
    *,
    mode: str = "mean",
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
    order: str = ORDER,
) -> torch.Tensor:
    """torch.nn.functional.embedding_bag: sums, means or maxima of rows of `weight` (rows, features): (bags, features).

    `index` (bags, n), or (n,) with `offsets` (bags,), the place where each bag begins; with `include_last_offset` the
    last offset is the end of the last bag. `per_sample_weights`, of the shape of `index`, multiply the rows of `sum`,
    and round each product. Indices equal to `padding_idx` are in no bag; an empty bag is zero.

    A mean is the sum divided by the number of rows: rounded once under `exact`, twice in other orders. A maximum has
    its gradient in one row: of several equal ones the first in the bag, as in torch; for `exact` the one of least
    number in `weight`, whatever the order of the bag. Raises as `embedding`; ValueError for offsets, shapes or a mode
    that do not fit.
    """
    what = "embedding_bag"
    known("mode of embedding_bag", mode, MODES)
    padding = _padding(what, weight, padding_idx)
    bag, bags = _bags(what, index, offsets, include_last_offset)
    _, flat = along(what, weight, 0, index.reshape(-1), order)
    if padding is not None:
        bag = torch.where(flat == padding, bags, bag)
    if per_sample_weights is not None:
        same_type(what, weight, per_sample_weights)
        if mode != "sum" or per_sample_weights.shape != index.shape:
            raise ValueError(
                f"fpna.torch.{what}: per_sample_weights of shape {tuple(per_sample_weights.shape)} and mode {mode!r}; "
                f"{tuple(index.shape)}, the shape of index, and mode 'sum' are expected"
            )
    if mode == "max" and len(weight):
        return _maxima(weight, flat, bag, bags, order)
    every = bags + 1  # the last of these bags is of rows that are in none
    if mode == "mean":
        count = torch.zeros(every, dtype=torch.int64, device=bag.device)
        count = count.scatter_add(0, bag, torch.ones_like(bag)).clamp(min=1)
        return torch.ops.fpna.means(weight, flat, bag, count, order).narrow(0, 0, bags)
    if per_sample_weights is None:
        return torch.ops.fpna.bag_sums(weight, flat, bag, every, order).narrow(0, 0, bags)
    rows = take(weight, 0, flat, order)
    factors = torch.where(bag == bags, 0, per_sample_weights.reshape(-1)).unsqueeze(1)
    products = torch.ops.fpna.product(rows, expanded(what, factors, rows.shape, order))
    return rows_added(None, bag, products, (every, weight.shape[1]), order).narrow(0, 0, bags)


def _maxima(weight, flat, bag, bags: int, order: str) -> torch.Tensor:
    """The largest of the rows of each bag, feature by feature."""
    rows = take(weight.detach(), 0, flat, order)
    values, cells = in_integers(rows), bag.unsqueeze(1).expand(rows.shape)
    nothing = torch.iinfo(torch.int64).max
    least = torch.full(
        (bags + 1, rows.shape[1]), torch.iinfo(values.dtype).min, dtype=values.dtype, device=rows.device
    )
    largest = least.scatter_reduce(0, cells, values, "amax").gather(0, cells)
    by_row = order == "exact"
    key = flat.long() if by_row else torch.arange(len(flat), device=flat.device)
    key = torch.where(values == largest, key.unsqueeze(1), nothing)
    winner = torch.full_like(least, nothing, dtype=torch.int64).scatter_reduce(0, cells, key, "amin")[:bags]
    empty = winner == nothing
    winner = torch.where(empty, 0, winner)
    if not by_row and len(flat):
        winner = flat.long()[winner]
    return torch.where(empty, 0, gather(weight, 0, winner, order=order))


def _bags(what: str, index: torch.Tensor, offsets: torch.Tensor | None, include_last: bool):
    """(the bag of each index as int64 (n,), the number of bags); an index behind the last bag has this number."""
    if index.ndim == 2:
        bags, n = index.shape
        if offsets is not None or include_last or n == 0:
            raise ValueError(
                f"fpna.torch.{what}: an index of shape {tuple(index.shape)} has equal bags, which are not empty and "
                "take no offsets; give an index (n,) with offsets"
            )
        return torch.arange(bags, device=index.device).repeat_interleave(n), bags
    if index.ndim != 1 or offsets is None or offsets.ndim != 1:
        of = None if offsets is None else tuple(offsets.shape)
        raise ValueError(
            f"fpna.torch.{what}: index has shape {tuple(index.shape)} and offsets {of}; (bags, n) and None, or (n,) "
            "and (bags,) are expected"
        )
    if len(offsets) == 0 and (include_last or len(index)):
        raise ValueError(f"fpna.torch.{what}: no offsets for {len(index)} indices; one at least is expected")
    bags, n = len(offsets) - include_last, len(index)
    if len(offsets) == 0:
        return torch.zeros(0, dtype=torch.int64, device=index.device), 0
    ends = torch.cat([integers(what, offsets), offsets.new_full((1,), n)])
    return torch.ops.fpna.segments(ends, n), bags


def _padding(what: str, weight: torch.Tensor, padding_idx: int | None) -> int | None:
    """The number of the row without gradient, or None, after checks of both arguments."""
    if weight.ndim != 2:
        raise ValueError(
            f"fpna.torch.{what}: weight has shape {tuple(weight.shape)}; (rows, features) is expected"
        )
    if padding_idx is None or (
        padding_idx == 0 and what == "embedding" and not len(weight)
    ):  # as torch accepts
        return None
    if not -len(weight) <= padding_idx < len(weight):
        raise ValueError(
            f"fpna.torch.{what}: padding_idx {padding_idx} is not one of the {len(weight)} rows of weight"
        )
    return padding_idx % len(weight)
