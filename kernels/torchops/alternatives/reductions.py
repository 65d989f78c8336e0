"""torch.sum, mean, amax and cumsum over dims in a chosen order, and sums of segments."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kernels.guarantees import known
from kernels.sums.prefix import ORDERS as OF_PREFIXES
from kernels.torchops.alternatives.opaque import checked_order
from kernels.torchops.alternatives.operands import (
    along,
    cast,
    converted,
    dimension,
    floating,
    integers,
    rows_added,
)
from kernels.torchops.alternatives.operators import ORDER

Dims = int | Sequence[int] | None


def sum(
    x: torch.Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    order: str = ORDER,
) -> torch.Tensor:
    """torch.sum over one, several or all dimensions; x is converted to `dtype`, if it is given."""
    x = _converted("sum", x, dtype)
    rows, shape = _rows("sum", x, dim, keepdim, order)
    return _total(rows, order).reshape(shape)


def mean(
    x: torch.Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    order: str = ORDER,
) -> torch.Tensor:
    """torch.mean over one, several or all dimensions: the sum in `order`, divided by the number of elements.

    `exact` divides the exact sum and rounds once, to nearest even, to the type of the result; so a mean of finite
    numbers is finite, where torch's may overflow. Other orders round the sum, and the quotient again; for half types
    both are float32 before, and a mean is infinite where the sum is. NaN of no elements. The gradient of each element
    is a quotient, without a sum. Raises as `sum`.
    """
    x = _converted("mean", x, dtype)
    rows, shape = _rows("mean", x, dim, keepdim, order)
    count = torch.full((1,), rows.shape[0], dtype=torch.int64, device=x.device)
    return torch.ops.fpna.means(rows, None, _one_bin(rows), count, order).reshape(shape)


def amax(
    x: torch.Tensor, dim: int | Sequence[int] = (), keepdim: bool = False, *, order: str = ORDER
) -> torch.Tensor:
    """torch.amax over one, several or all dimensions; a zero is +0.0, and NaN wins.

    The maximum adds nothing. Its gradient, divided by the number of elements that equal the maximum, goes to each of
    them, as in torch: nothing is added there, and no order shows. `order` is that of the gradient of the gradient, a
    sum over these elements. Raises IndexError for a maximum of no elements.
    """
    rows, shape = _rows("amax", x, dim, keepdim, order)
    if rows.shape[0] == 0:
        raise IndexError(
            f"fpna.torch.amax: no elements along dim {dim} of a tensor of shape {tuple(x.shape)}"
        )
    return torch.ops.fpna.most(rows, order).reshape(shape)


def cumsum(
    x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None, order: str = ORDER
) -> torch.Tensor:
    """torch.cumsum: the sums of the first 1, 2, ... elements along `dim`; x is converted to `dtype`, if it is given.

    `exact`: each of them is correctly rounded. `sorted`: each is the one before plus the next element. The gradient has
    the same sums, from the last element to the first. Raises ChoiceError for another order; on the CPU only.
    """
    known("order of cumsum", order, OF_PREFIXES)
    x = _converted("cumsum", x, dtype)
    dim = dimension("cumsum", x, dim)
    front = (x.reshape(1) if x.ndim == 0 else x).movedim(dim, 0)
    rows = front.reshape(front.shape[0], math.prod(front.shape[1:]))
    return torch.ops.fpna.prefix_sums(rows, order).reshape(front.shape).movedim(0, dim).reshape(x.shape)


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
    floating(what, x)
    if offsets is not None:
        if offsets.ndim != 1 or len(offsets) == 0:
            raise ValueError(f"fpna.torch.{what}: offsets are (segments + 1,), not {tuple(offsets.shape)}")
        bins, index = len(offsets) - 1, torch.ops.fpna.segments(integers(what, offsets), len(x))
    assert index is not None and bins is not None
    empty = x.new_zeros((bins, *x.shape[1:]))
    _, index = along(what, empty, 0, index, order)
    if len(index) != len(x):
        raise ValueError(f"fpna.torch.{what}: {len(index)} indices for {len(x)} rows")
    return rows_added(None, index, x, empty.shape, order)


def _converted(what: str, x: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    x = cast(what, x)[0] if dtype is None else converted(x, dtype)
    floating(what, x)
    return x


def _several(dim: Dims) -> tuple[int, ...]:
    """`dim` as a tuple; it is empty for all dimensions, as in torch."""
    return () if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)


def _rows(what: str, x: torch.Tensor, dim: Dims, keepdim: bool, order: str) -> tuple[torch.Tensor, list[int]]:
    """(the elements of each sum as a column, by ascending place; the shape of the sums), after checks."""
    checked_order(order)
    floating(what, x)
    dims = [dimension(what, x, d) for d in _several(dim) or range(x.ndim)]
    if len(set(dims)) < len(dims):
        raise ValueError(f"fpna.torch.{what}: dim {dim} names a dimension twice")
    dims = sorted(dims) if x.ndim else []
    rest = [d for d in range(x.ndim) if d not in dims]
    sizes = [x.shape[d] for d in rest]
    rows = x.permute((*dims, *rest)).reshape(math.prod([x.shape[d] for d in dims]), math.prod(sizes))
    return rows, [1 if d in dims else x.shape[d] for d in range(x.ndim)] if keepdim else sizes


def _total(rows: torch.Tensor, order: str) -> torch.Tensor:
    """The sum of each column of `rows` (n, columns): (1, columns)."""
    return torch.ops.fpna.add_rows(None, _one_bin(rows), rows, 1, order)


def _one_bin(rows: torch.Tensor) -> torch.Tensor:
    """The index that adds all `rows` to one sum."""
    return torch.zeros(rows.shape[0], dtype=torch.int32, device=rows.device)
