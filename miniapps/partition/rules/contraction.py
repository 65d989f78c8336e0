"""Products of matrices and attention."""

from collections.abc import Sequence

from miniapps.partition.graphs.graph import Node, Tensor
from miniapps.partition.rules.factors import CONTRACTING, Rule, all_whole, labelled

SUBSCRIPTS = {"mm": "ik,kj->ij", "bmm": "bik,bkj->bij", "mv": "ik,k->i", "dot": "k,k->", "outer": "i,j->ij"}


def product(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """The rule of a product, from subscripts like einsum's."""
    operands, result = SUBSCRIPTS[node.target.split(".")[1]].split("->")
    return labelled(node, tensors, operands.split(","), [result], "matmul", priority=CONTRACTING, fill=0.0)


def attention(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """Samples, heads and queries may be cut: query (b, h, q, d), key and value (b, h, k, d); a mask may broadcast. The
    queries of causal attention need a mask for it: the local ones do not begin with the first key."""
    read, made = ["bhqd", "bhkd", "bhkd"], ["bhqd", "bhq"]
    backward = "backward" in node.target
    if backward:  # gradient, q, k, v, result, logsumexp -> gradients of q, k, v
        read, made = ["bhqd", "bhqd", "bhkd", "bhkd", "bhqd", "bhq"], ["bhqd", "bhkd", "bhkd"]
    if len(tensors) > len(read):
        read.append("bhqk"[-len(tensors[-1].shape) :])
    if tensors[1].shape[1] != tensors[0].shape[1]:
        return all_whole(node, tensors, "queries and keys have different numbers of heads", "rowwise")
    why = "attention is a softmax over all keys, so keys and values are gathered"
    causal = bool(node.args[7 if backward else 4]) if len(node.args) > (7 if backward else 4) else False
    return labelled(
        node, tensors, read, made, "rowwise", whole="kd", parted="q" if causal else "", priority=CONTRACTING,
        fill=0.0, reason=why,
    )  # fmt: skip


RULES = {
    **dict.fromkeys(SUBSCRIPTS, product),
    "_scaled_dot_product_flash_attention_for_cpu": attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": attention,
}
