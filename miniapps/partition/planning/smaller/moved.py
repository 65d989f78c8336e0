"""Elements that move along a dim, and sums up to a place."""

from __future__ import annotations

from miniapps.partition.graphs.graph import Node
from miniapps.partition.graphs.simplify import operation
from miniapps.partition.planning.smaller.work import Cuts, Smaller


def slice_of(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each place reads another; a single place is the sum of it and of zeros."""
    x, dim, begin, _, step = node.args
    (result,) = node.results
    if result.shape[dim] == 1:
        n = work.shape(x)[dim]
        here = work.between(n, begin, begin + 1, dim, len(result.shape), cuts[dim])
        found = work.where(here, x, work.scalar(0, result.dtype))
        work.ends(work.reduced("sum", found, (dim,)), result)
        return True
    work.ends(work.places(x, dim, result.shape[dim], step, begin), result)
    return True


def pad(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each place reads another; a border of another value than 0 is put in by place."""
    x, border, value = (*node.args, 0)[:3]
    (result,) = node.results
    rank = len(result.shape)
    rest = list(border)
    for k in range(len(border) // 2):
        dim = rank - 1 - k
        if dim in cuts:
            n, size, before = work.shape(x)[dim], result.shape[dim], border[2 * k]
            single = n == 1
            x = work.spread(x, dim, size, before)
            if single or (value != 0 and (before > 0 or border[2 * k + 1] > 0)):
                inside = work.between(size, before, before + n, dim, rank, cuts[dim])
                x = work.where(inside, x, work.scalar(value, result.dtype))
            rest[2 * k] = rest[2 * k + 1] = 0
    if any(rest):
        x = work.put("border", node.target, (x, tuple(rest), value), result.shape, result.dtype)
    work.ends(x, result)
    return True


def flip(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each place reads the one at the same distance from the other end."""
    x, dims = node.args
    (result,) = node.results
    rest = tuple(d for d in dims if d % len(result.shape) not in cuts)
    for dim in cuts:
        x = work.places(x, dim, result.shape[dim], -1, result.shape[dim] - 1)
    if rest:
        x = work.put("rest", node.target, (x, rest), result.shape, result.dtype)
    work.ends(x, result)
    return True


def roll(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each place reads the one before it by the shift."""
    x, shifts, dims = node.args
    (result,) = node.results
    rest = []
    for shift, d in zip(shifts, dims, strict=True):
        dim = d % len(result.shape)
        n = result.shape[dim]
        if dim in cuts:
            x = work.places(x, dim, n, offset=-shift % n, wrap=True)
        else:
            rest.append((shift, dim))
    if rest:
        shifts, dims = zip(*rest, strict=True)
        x = work.put("rest", node.target, (x, shifts, dims), result.shape, result.dtype)
    work.ends(x, result)
    return True


def cat(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each place reads that of the operand which has it."""
    operands = node.args[0]
    (result,) = node.results
    rank = len(result.shape)
    dim = (node.args[1] if len(node.args) > 1 else 0) % rank
    n, begins = result.shape[dim], [0]
    for x in operands:
        begins.append(begins[-1] + work.shape(x)[dim])
    if any(work.dtype(x) != result.dtype for x in operands):
        return False
    there = [(x, begin) for x, begin in zip(operands, begins, strict=False) if work.shape(x)[dim]]
    if len(there) < 2:
        return False
    (x, begin), *before = reversed(there)
    joined = work.spread(x, dim, n, begin)
    for x, end in zip(before, [begin, *(b for _, b in before)], strict=False):
        mine = work.spread(x[0], dim, n, x[1])
        joined = work.where(work.between(n, 0, end, dim, rank, cuts[dim]), mine, joined)
    work.ends(joined, result)
    return True


def into(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each place of the part reads the part, others x."""
    x, part = node.args[:2]
    (result,) = node.results
    rank = len(result.shape)
    dim = node.args[2] % rank
    n = result.shape[dim]
    begin = node.args[3] if len(node.args) > 3 and node.args[3] is not None else 0
    begin = max(begin + n, 0) if begin < 0 else min(begin, n)
    if operation(node.target) == "select_scatter":
        part = work.view(part, [1 if d == dim else m for d, m in enumerate(result.shape)])
    size = work.shape(part)[dim]
    if not size:
        return False
    placed = work.spread(part, dim, n, begin)
    work.ends(work.where(work.between(n, begin, begin + size, dim, rank, cuts[dim]), placed, x), result)
    return True


def diagonal_part(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Zeros where the column is beyond the diagonal of its row."""
    x, diagonal = (*node.args, 0)[:2]
    (result,) = node.results
    rank = len(result.shape)
    rows, columns = (
        work.along(work.rows(result.shape[d], cuts.get(d)), d, rank) for d in (rank - 2, rank - 1)
    )
    apart = work.apply("sub", columns, rows)
    kept = work.apply("le" if operation(node.target) == "tril" else "ge", apart, diagonal, dtype="bool")
    work.ends(work.where(kept, x, work.scalar(0, result.dtype)), result)
    return True


def cumsum(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Sums within blocks; the sums of the blocks before each block are added by the tree over all blocks."""
    x, dim = node.args[:2]
    (result,) = node.results
    dim %= len(result.shape)
    starts = work.starts(cuts[dim])
    if starts is None:
        return False
    if work.dtype(x) != result.dtype:
        kwargs = (("dtype", f"torch.{result.dtype}"),)
        x = work.put("as", "aten._to_copy.default", (x,), result.shape, result.dtype, kwargs)
    rows = work.rows(result.shape[dim], cuts[dim])
    inner = work.put("inner", "partition.scan_blocks", (x, rows, dim, starts), result.shape, result.dtype)
    by_block = [len(starts) if d == dim else n for d, n in enumerate(result.shape)]
    before = work.put("before", "partition.scan_before", (inner, rows, dim, starts), by_block, result.dtype)
    args = (inner, before, rows, dim, starts)
    work.ends(work.put("after", "partition.scan_after", args, result.shape, result.dtype), result)
    return True


SMALLER = {
    "slice": slice_of,
    "constant_pad_nd": pad,
    "flip": flip,
    "roll": roll,
    "cat": cat,
    **dict.fromkeys(("select_scatter", "slice_scatter"), into),
    **dict.fromkeys(("tril", "triu"), diagonal_part),
    "cumsum": cumsum,
}
