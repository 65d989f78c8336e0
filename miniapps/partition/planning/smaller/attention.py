"""Attention of cut tokens: all keys and values at once for the local queries, or one block after the other (ring).

`ring` (Liu et al. 2023, arXiv 2310.01889) keeps keys and values of one block beside those of a rank. All ranks get each
block, from the first one on, and accumulate the softmax online (Milakov and Gimelshein 2018, arXiv 1805.02867). So the
order does not follow the mesh.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as changed
from itertools import pairwise
from math import inf

from miniapps.partition.cuts.steps import ATTENTION_STEPS
from miniapps.partition.graphs.graph import Node, Tensor
from miniapps.partition.graphs.simplify import operation
from miniapps.partition.planning.smaller.work import Cuts, Smaller

GATHERED, RING = ATTENTION = "gathered", "ring"
NAMES = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
)


def attention(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """In blocks if keys are cut; else causal attention by a mask, since the local queries do not begin with the first
    key."""
    if "k" in cuts and in_blocks(work, node, cuts):
        return True
    at = 7 if "backward" in node.target else 4
    kwargs = dict(node.kwargs)
    if kwargs.get("attn_mask") is not None or not node.args[at]:
        return False
    q, k = node.args[1:3] if at == 7 else node.args[:2]
    queries, keys, dtype = work.shape(q)[2], work.shape(k)[2], work.dtype(q)
    rows = work.along(work.rows(queries, cuts["q"]), 0, 2)
    columns = work.along(work.made("keys", "aten.arange.default", (keys,), (keys,), "int64"), 1, 2)
    seen = work.apply("ge", rows, columns, dtype="bool")
    kwargs["attn_mask"] = work.where(seen, work.scalar(0.0, dtype), work.scalar(-inf, dtype))
    args = (*node.args[:at], False, *node.args[at + 1 :])
    work.nodes.append(changed(node, args=args, kwargs=tuple(kwargs.items())))
    return True


def in_blocks(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Attention, or its gradient, block by block; False for a mask, and for one block."""
    backward = operation(node.target) == NAMES[1]
    kwargs = dict(node.kwargs)
    starts = work.starts(cuts["k"])
    if kwargs.get("attn_mask") is not None or starts is None or len(starts) < 2:
        return False
    at = 7 if backward else 4
    causal = bool(node.args[at]) if len(node.args) > at else False
    (backwards if backward else forwards)(work, node, cuts, starts, (causal, kwargs.get("scale")))
    return True


def blocks(work: Smaller, k: str, v: str, starts: tuple[int, ...]) -> Iterator[tuple[int, int, str, str]]:
    """(begin, end, keys, values) of each block, which all ranks get whose queries see it."""
    shape = work.shape(k)
    for begin, end in pairwise((*starts, shape[2])):
        block = (*shape[:2], end - begin, shape[3])
        keys, values = work.several(
            "block", "partition.span", ((k, v), 2, begin, end), [block, block], work.dtype(k)
        )
        yield begin, end, keys, values


def forwards(work: Smaller, node: Node, cuts: Cuts, starts: tuple[int, ...], how: tuple) -> None:
    """The result and the logarithms of sums of the blocks so far, updated by each block."""
    q, k, v = node.args[:3]
    rows = work.rows(work.shape(q)[2], cuts["q"])
    so_far: tuple = (None, None)
    for begin, end, keys, values in blocks(work, k, v, starts):
        args = q, keys, values, *so_far, rows, begin, end, *how
        shapes = [work.shape(q), work.shape(q)[:3]]
        so_far = work.several("step", ATTENTION_STEPS[0], args, shapes, work.dtype(q))
    work.nodes.append(changed(work.nodes.pop(), name=node.name, results=node.results))


def backwards(work: Smaller, node: Node, cuts: Cuts, starts: tuple[int, ...], how: tuple) -> None:
    """The gradient of the queries adds up over blocks; those of a block's keys and values are sums over queries, which
    the owner of the block gets and puts among its own."""
    gradient, q, k, v, out, logs = node.args[:6]
    rows, places = work.rows(work.shape(q)[2], cuts["q"]), work.rows(work.shape(k)[2], cuts["k"])
    named = {tensor.name.rpartition(".")[2]: tensor for tensor in node.results}
    of_q: str | None = None
    made: dict[str, str | None] = {"1": None, "2": None}
    last = work.shape(k)[2]
    for begin, end, keys, values in blocks(work, k, v, starts):
        args = gradient, q, keys, values, out, logs, rows, begin, end, *how
        shapes = [work.shape(q), work.shape(keys), work.shape(values)]
        each = work.several("step", ATTENTION_STEPS[1], args, shapes, work.dtype(q))
        ends = end == last
        for number, part in zip(made, each[1:], strict=True):
            put = made[number], part, places, 2, begin
            made[number] = value = work.put("put", "partition.put_span", put, work.shape(k), work.dtype(k))
            named_last(work, value, named.get(number) if ends else None)
        if of_q is None:
            of_q = each[0]
        else:
            of_q = work.apply("add", of_q, each[0])
            named_last(work, of_q, named.get("0") if ends else None)


def named_last(work: Smaller, value: str, result: Tensor | None) -> None:
    """Give the last node the name of a result, if there is one."""
    if result is not None:
        work.ends(value, result)


SMALLER = dict.fromkeys(NAMES, attention)
