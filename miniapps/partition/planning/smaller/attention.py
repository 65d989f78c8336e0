"""Attention of cut queries."""

from __future__ import annotations

from dataclasses import replace as changed
from math import inf

from miniapps.partition.graphs.graph import Node
from miniapps.partition.planning.smaller.work import Cuts, Smaller


def attention(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Causal attention by a mask, since the local queries do not begin with the first key."""
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


SMALLER = {
    "_scaled_dot_product_flash_attention_for_cpu": attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": attention,
}
