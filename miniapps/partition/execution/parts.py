"""The suite's own operations (`partition.NAME`), of which `planning.smaller` makes operations along a cut dim.

They get their part of a dim together with `rows`, the ascending places of this part in the whole dim (-1: padding). So
they need no knowledge of blocks, owners and meshes, and a whole dim is one part. They only move and compare elements,
except for sums of the operations that they stand for, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import product
from typing import Any

import torch
from torch.nn.functional import pad

aten = torch.ops.aten
BEYOND = 2**63 - 1


# ---- moves along a dim


def places(x, dim: int, size: int, scale: int, offset: int, wrap: bool):
    """Element j of dim `dim`, one of `size`, is element scale j + offset of x, modulo its size if `wrap`, else zero
    outside x."""
    n = x.shape[dim]
    at = torch.arange(size, device=x.device) * scale + offset
    if wrap:
        return x.index_select(dim, at % n)
    inside = (at >= 0) & (at < n)
    found = x.index_select(dim, at.clamp(0, n - 1))
    return torch.where(along(inside, dim, x.dim()), found, x.new_zeros(()))


def stepped(x, dim: int, scale: int):
    """Every |scale|-th element of a dim, backwards if scale is negative."""
    if scale < 0:
        x = x.flip(dim)
    return x[(slice(None),) * dim + (slice(None, None, abs(scale)),)]


def along(vector, dim: int, rank: int):
    """A vector as a tensor of `rank` dims, in dim `dim`."""
    return vector.reshape([-1 if d == dim else 1 for d in range(rank)])


# ---- lookups


def found_in(rows, index, size: int):
    """Returns (the position in `rows` of each index, whether it is there). Raises IndexError for an index outside the
    whole dim of `size`."""
    if not index.is_meta and index.numel() and not 0 <= int(index.min()) <= int(index.max()) < size:
        raise IndexError(f"index {int(index.min())} to {int(index.max())} of a dim of size {size}")
    rows = torch.where(rows < 0, BEYOND, rows)
    at = torch.searchsorted(rows, index.contiguous()).clamp_max(rows.shape[0] - 1)
    return at, rows[at] == index


def local(indices: Sequence, rows: Sequence, sizes: Sequence[int]) -> tuple[list, Any]:
    """Returns (indices into the parts given by `rows`, one or None for each, whether all of them are there)."""
    made, hits = [], []
    for index, of, size in zip(indices, rows, sizes, strict=True):
        if of is not None:
            index, hit = found_in(of, index, size)
            hits.append(hit)
        made.append(index)
    return made, reduce(torch.logical_and, hits)


def index_at(x, indices: Sequence, rows: Sequence, sizes: Sequence[int]):
    """x[indices] of the elements that this part has, zeros for others. `rows`: for each index those of its dim, or
    None; `sizes`: of these dims."""
    own, there = local(indices, rows, sizes)
    dims = [d for d, index in enumerate(indices) if index is not None]
    found = aten.index(x, own)
    shape = torch.broadcast_shapes(*(indices[d].shape for d in dims))
    at = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    there = there.expand(shape).reshape(*shape, *[1] * (found.dim() - at - len(shape)))
    return torch.where(there, found, x.new_zeros(()))


def index_put_at(x, indices: Sequence, values, accumulate: bool, rows: Sequence, sizes: Sequence[int]):
    """x with `values` put at, or added to, the indices that this part has."""
    own, there = local(indices, rows, sizes)
    dim = next(d for d, of in enumerate(rows) if of is not None)
    shape = list(x.shape)
    n, shape[dim] = shape[dim], 1
    own[dim] = torch.where(there, own[dim], n)  # to one more element, which is then left out
    longer = torch.cat([x, x.new_zeros(shape)], dim)
    return aten.index_put(longer, own, values, accumulate).narrow(dim, 0, n)


def embedding_gradient_at(gradient, indices, rows, size: int, padding: int):
    """The sums of the rows of `gradient` (indices, columns) whose index is one of `rows`, in the order of the indices:
    (rows, columns)."""
    at, there = found_in(rows, indices, size)
    n = rows.shape[0]
    at = torch.where(there & (indices != padding), at, n)
    return aten.embedding_dense_backward(gradient.contiguous(), at, n + 1, n, False).narrow(0, 0, n)


def gather_at(x, dim: int, index, rows, size: int):
    """torch's gather of the elements that this part has, zeros for others."""
    at, there = found_in(rows, index, size)
    return torch.where(there, x.gather(dim, at), x.new_zeros(()))


def scatter_at(x, dim: int, index, source, rows, size: int, add: bool):
    """x with `source`, a tensor or a number, put at (or added to) the indices that this part has."""
    at, there = found_in(rows, index, size)
    shape = list(x.shape)
    n, shape[dim] = shape[dim], 1
    at = torch.where(there, at, n)
    longer = torch.cat([x, x.new_zeros(shape)], dim)
    found = longer.scatter_add(dim, at, source) if add else longer.scatter(dim, at, source)
    return found.narrow(dim, 0, n)


# ---- sums of all elements up to one, by blocks that begin at `starts`


def segments(rows, starts: Sequence[int]) -> list[tuple[int, int, int]]:
    """(block, begin, end) of the blocks in `rows`; of tensors without numbers only their end."""
    if rows.is_meta:
        return [(0, 0, rows.shape[0])]
    blocks = (torch.searchsorted(torch.tensor(starts), rows, right=True) - 1).tolist()
    ends = [k + 1 for k, block in enumerate(blocks) if block not in blocks[k + 1 : k + 2]]
    return [
        (blocks[begin], begin, end)
        for begin, end in zip([0, *ends[:-1]], ends, strict=True)
        if blocks[begin] >= 0
    ]


def scan_blocks(x, rows, dim: int, starts: Sequence[int]):
    """cumsum within each block."""
    found = torch.zeros_like(x)
    for _, begin, end in segments(rows, starts):
        found.narrow(dim, begin, end - begin).copy_(x.narrow(dim, begin, end - begin).cumsum(dim))
    return found


def scan_before(x, rows, dim: int, starts: Sequence[int]):
    """Of the result of `scan_blocks`: for each block the sum of the blocks before it, as far as they are in this
    part, in dim `dim`."""
    shape = list(x.shape)
    shape[dim] = len(starts)
    found = x.new_zeros(shape)
    for block, _, end in segments(rows, starts):
        behind = len(starts) - block - 1
        found.narrow(dim, block + 1, behind).add_(x.narrow(dim, end - 1, 1))
    return found


def scan_after(x, before, rows, dim: int, starts: Sequence[int]):
    """The result of `scan_blocks` plus, for each block, the sum of those before it."""
    found = x.clone()
    for block, begin, end in segments(rows, starts):
        found.narrow(dim, begin, end - begin).add_(before.narrow(dim, block, 1))
    return found


# ---- the largest element of each window of an image, without padding


def offsets(kernel: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The places of a window, the last dim fastest."""
    return product(*map(range, kernel))


def window_at(x, offset, stride, dilation, counts):
    """The element at one place of each window."""
    for d, (o, step, apart, n) in enumerate(zip(offset, stride, dilation, counts, strict=True)):
        begin, dim = o * apart, x.dim() - len(stride) + d
        x = x[(slice(None),) * dim + (slice(begin, begin + (n - 1) * step + 1, step),)]
    return x


def windows(x, kernel, stride, dilation) -> list[int]:
    """The number of windows along each dim."""
    sizes = x.shape[x.dim() - len(kernel) :]
    return [
        (n - (k - 1) * apart - 1) // step + 1
        for n, k, step, apart in zip(sizes, kernel, stride, dilation, strict=True)
    ]


def pool_max(x, kernel, stride, dilation):
    """The largest element of each window."""
    counts = windows(x, kernel, stride, dilation)
    return reduce(torch.maximum, (window_at(x, o, stride, dilation, counts) for o in offsets(kernel)))


def pool_which(x, kernel, stride, dilation):
    """The number of the first largest element in each window, or of the last that is not a number: int64."""
    counts = windows(x, kernel, stride, dilation)
    first, *others = offsets(kernel)
    top = window_at(x, first, stride, dilation, counts)
    which = torch.zeros(top.shape, dtype=torch.int64, device=x.device)
    for number, offset in enumerate(others, start=1):
        found = window_at(x, offset, stride, dilation, counts)
        more = (found > top) | found.isnan()
        top, which = torch.where(more, found, top), torch.where(more, number, which)
    return which


def pool_max_gradient(gradient, which, kernel, stride, dilation, sides, size):
    """The gradient of `pool_max` for an image of spatial shape `size`, whose first place is `sides` places after that
    of the first window: sums over windows in the order of their places."""
    counts = gradient.shape[gradient.dim() - len(kernel) :]
    long = [
        (n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(counts, stride, kernel, dilation, strict=True)
    ]
    full = gradient.new_zeros([*gradient.shape[: gradient.dim() - len(kernel)], *long])
    for number, offset in enumerate(offsets(kernel)):
        window_at(full, offset, stride, dilation, counts).add_(
            torch.where(which == number, gradient, gradient.new_zeros(()))
        )
    borders = [
        side
        for n, m, low in reversed(list(zip(long, size, sides, strict=True)))
        for side in (-low, m - n + low)
    ]
    return pad(full, borders) if any(borders) else full


PARTS: dict[str, Callable] = {
    function.__name__: function
    for function in (
        places, stepped, index_at, index_put_at, embedding_gradient_at, gather_at, scatter_at, scan_blocks,
        scan_before, scan_after, pool_max, pool_which, pool_max_gradient,
    )
}  # fmt: skip
