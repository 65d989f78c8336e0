"""Attention block by block (`planning.smaller.attention`): one block of keys and values for the local queries.

Each query is computed alone, and a query of causal attention leaves out the blocks behind it. A rank all of whose
queries leave out a block gets no keys and values of it. `attend` and `back` are the attention of a guarantee, with
torch's signature; `exp` and `log` its functions of elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

aten = torch.ops.aten
torch_attention = aten._scaled_dot_product_flash_attention_for_cpu
torch_backward = aten._scaled_dot_product_flash_attention_for_cpu_backward


def sights(rows, begin: int, size: int, causal: bool) -> tuple[int, int, int]:
    """(first, behind, end) of the queries with the places `rows`, ascending and then -1, that see keys of the block
    [begin, begin + size): those in [first, behind) are inside it, those in [behind, end) see all of it."""
    if not causal:
        return 0, 0, rows.shape[0]
    known = rows[rows >= 0]
    first, behind = torch.searchsorted(known, torch.tensor([begin, begin + size])).tolist()
    return first, behind, len(known)


def seen(rows, begin: int, size: int, causal: bool, dtype) -> Iterator[tuple[slice, torch.Tensor | None]]:
    """(local queries, their mask) of `sights`: of the queries inside the block, and of those that see all of it."""
    first, behind, end = sights(rows, begin, size, causal)
    if first < behind:
        inside = rows[first:behind, None] >= torch.arange(begin, begin + size)
        yield slice(first, behind), torch.where(inside, 0.0, -torch.inf).to(dtype)
    if behind < end:
        yield slice(behind, end), None


def attention_step(
    q, k, v, out, logs, rows, begin: int, end: int, causal: bool, scale: float | None,
    attend: Callable = torch_attention, exp: Callable = torch.exp, log: Callable = torch.log,
):  # fmt: skip
    """Returns the result (samples, heads, queries, width) and the logarithms of sums (samples, heads, queries) of the
    blocks so far, `out` and `logs`, and this one, [begin, end); None before the first."""
    if rows.is_meta:  # without numbers
        return torch.empty_like(q), q.new_empty(q.shape[:3])
    seeing = list(seen(rows, begin, end - begin, causal, q.dtype))
    fresh = out is None
    if not (seeing or fresh):
        return out, logs
    out = torch.zeros_like(q) if fresh else out.clone()
    logs = torch.full(q.shape[:3], -torch.inf, dtype=q.dtype, device=q.device) if fresh else logs.clone()
    for at, mask in seeing:
        new, more = attend(q[:, :, at].contiguous(), k, v, 0.0, False, attn_mask=mask, scale=scale)
        top = torch.maximum(logs[:, :, at], more)
        old, share = exp(logs[:, :, at] - top), exp(more - top)
        total = old + share
        out[:, :, at] = out[:, :, at] * (old / total)[..., None] + new * (share / total)[..., None]
        logs[:, :, at] = top + log(total)
    return out, logs


def attention_step_backward(
    gradient, q, k, v, out, logs, rows, begin: int, end: int, causal: bool, scale: float | None,
    back: Callable = torch_backward,
):  # fmt: skip
    """Returns what this block adds to the gradient of q, and the gradients of k and v by these queries. `out` and
    `logs`: of all blocks."""
    size = end - begin
    of_q = torch.zeros_like(q)
    of_k, of_v = (x.new_zeros((*x.shape[:2], size, x.shape[3])) for x in (k, v))
    for at, mask in () if rows.is_meta else seen(rows, begin, size, causal, q.dtype):
        given = [x[:, :, at].contiguous() for x in (gradient, q, out, logs)]
        parts = back(given[0], given[1], k, v, *given[2:], 0.0, False, attn_mask=mask, scale=scale)
        of_q[:, :, at] = parts[0]
        of_k, of_v = of_k + parts[1], of_v + parts[2]
    return of_q, of_k, of_v


def span(xs, dim: int, begin: int, end: int):
    """The places [begin, end) of a dim of whole tensors."""
    return [x.narrow(dim, begin, end - begin) for x in xs]


def put_span(base, part, rows, dim: int, begin: int):
    """Each place of a dim, of `rows`, from `part`, whose first place is `begin`; places outside it from `base`, or
    zero. A rank without any of these places may have a part of no element."""
    shape = [rows.shape[0] if d == dim else n for d, n in enumerate(part.shape)]
    found = part.new_zeros(shape) if base is None else base.clone()
    if rows.is_meta:
        return found
    (at,) = torch.nonzero((rows >= begin) & (rows < begin + part.shape[dim]), as_tuple=True)
    return found.index_copy_(dim, at, part.index_select(dim, rows[at] - begin))


RING: dict[str, Callable] = {
    function.__name__: function for function in (attention_step, attention_step_backward, span, put_span)
}
