"""Operations that move or copy elements, or compute them from their place."""

from collections.abc import Sequence

from miniapps.partition.graphs.graph import Node, Tensor
from miniapps.partition.rules.factors import Reach, Rule, all_whole, labelled

FIRST = (frozenset({0}),)


def view(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """Labels both shapes by their common factors; dims without a common boundary are whole."""
    (x,), (result,) = tensors, node.results
    old, new, sizes, whole = common(x.shape, result.shape)
    return labelled(node, tensors, [old], [new], "view", sizes, whole, linear=FIRST)


def common(old: Sequence[int], new: Sequence[int]):
    """Returns (labels per old dim, labels per new dim, sizes, whole labels) of the finest common factors of two shapes.

    From minor to major, both shapes have a boundary where the same number of elements is behind it. Dims whose sizes
    do not divide each other between two boundaries share no factor.
    """
    sizes: dict = {}
    whole = []
    of_old: list[list] = [[] for _ in old]
    of_new: list[list] = [[] for _ in new]
    i, j = len(old) - 1, len(new) - 1
    left = right = 1  # remaining sizes of dims i and j
    while True:
        while left == 1 and i >= 0:
            left, i = old[i], i - 1
        while right == 1 and j >= 0:
            right, j = new[j], j - 1
        if left == 1 or right == 1:
            break
        label = len(sizes)
        if left % right == 0 or right % left == 0:
            size = min(left, right)
            sizes[label] = size
            of_old[i + 1].insert(0, label)
            of_new[j + 1].insert(0, label)
            left, right = left // size, right // size
            continue
        # No common factor: all dims up to the next common boundary are whole.
        a, b = left, right
        first, second = [i + 1], [j + 1]
        while a != b:
            if a < b:
                a, i = a * old[i], i - 1
                first.append(i + 1)
            else:
                b, j = b * new[j], j - 1
                second.append(j + 1)
        for dims, parts in ((first, of_old), (second, of_new)):
            for d in dims:
                label = len(sizes)
                behind = 1
                for known in parts[d]:
                    behind *= sizes[known]
                sizes[label] = (old if parts is of_old else new)[d] // behind
                parts[d].insert(0, label)
                whole.append(label)
        left = right = 1
    return [tuple(p) for p in of_old], [tuple(p) for p in of_new], sizes, whole


def permute(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """Dims in another order."""
    order = node.args[1]
    return labelled(node, tensors, [range(len(order))], [order], "view", linear=FIRST)


def expand(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """New dims, and dims of size 1 repeated."""
    rank = len(node.results[0].shape)
    return labelled(node, tensors, [range(rank - len(tensors[0].shape), rank)], [range(rank)], "view")


def along(
    node: Node, tensors: Sequence[Tensor], dim: int, kernel: str, reason: str, parted: bool, **more
) -> Rule:
    """A rule for operands and results with the same dims; `dim` is whole, perhaps `parted`."""
    rank = len(node.results[0].shape)
    if not rank:
        return all_whole(node, tensors, reason, kernel)
    more["parted" if parted else "whole"] = [dim % rank]
    operands, results = [range(rank)] * len(tensors), [range(rank)] * len(node.results)
    return labelled(node, tensors, operands, results, kernel, reason=reason, **more)


def shifted(dim: int, scale: int = 1, offset: int = 0, wrap: bool = False, operand: int = 0) -> Reach:
    """Place j of `dim` of the result is place scale j + offset of the operand."""
    return Reach(dim, operand, 0, True, 1, scale, 1, -offset, False, wrap)


def cat(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """The dim along which tensors are joined is parted. Operands much smaller than the longest stay whole there."""
    rank = len(node.results[0].shape)
    dim = (node.args[1] if len(node.args) > 1 else 0) % max(rank, 1)
    if any(len(tensor.shape) != rank for tensor in tensors):
        return all_whole(node, tensors, "tensors of another rank are joined", "view")
    longest = max(tensor.shape[dim] for tensor in tensors)
    begin, reaches = 0, []
    operands: list = []
    for k, tensor in enumerate(tensors):
        cut = 2 * tensor.shape[dim] >= longest
        operands.append([d if d != dim or cut else f"short{k}" for d in range(rank)])
        if cut:
            reaches.append(shifted(dim, offset=-begin, operand=k))
        begin += tensor.shape[dim]
    short = [f"short{k}" for k in range(len(tensors))]
    return labelled(
        node, tensors, operands, [range(rank)], "view", whole=short, parted=[dim], reaches=tuple(reaches),
        reason=f"dim {dim} is joined", linear=(frozenset(range(len(tensors))),),
    )  # fmt: skip


def slice_of(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """The sliced dim is parted."""
    _, dim, begin, _, step = node.args
    reaches = (shifted(dim, step, begin),) if node.results[0].shape[dim] > 1 else ()
    why = f"a part of dim {dim} is taken"
    return along(node, tensors, dim, "view", why, True, linear=FIRST, reaches=reaches)


def pad(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """Padded dims are parted."""
    rank, border = len(node.results[0].shape), node.args[1]
    before = {
        rank - 1 - k: border[2 * k] for k in range(len(border) // 2) if border[2 * k] or border[2 * k + 1]
    }
    reaches = tuple(shifted(d, offset=-n) for d, n in before.items())
    dims = range(rank)
    return labelled(
        node, tensors, [dims], [dims], "view", parted=before, reaches=reaches, reason="padded dims are whole"
    )


def into(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """select_scatter and slice_scatter: the dim that gets a new part is parted, the part whole there."""
    rank = len(node.results[0].shape)
    dim = node.args[2] % rank
    part: list = [d for d in range(rank) if d != dim]
    if len(tensors[1].shape) == rank:
        part.insert(dim, "part")
    return labelled(
        node, tensors, [range(rank), part], [range(rank)], "view", whole=["part"],
        parted=[dim] if len(node.args) < 6 or node.args[5] == 1 else [],
        reason=f"a part of dim {dim} is put there",
    )  # fmt: skip


def repeat(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """Repeated dims are whole."""
    rank, times = len(node.results[0].shape), node.args[1]
    old = range(rank - len(tensors[0].shape), rank)
    new = [d if times[d] == 1 else f"repeated{d}" for d in range(rank)]
    whole = [label for d, label in enumerate(new) if label != d] + [d for d in old if times[d] != 1]
    return labelled(node, tensors, [old], [new], "view", whole=whole, reason="repeated dims are whole")


def flip(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """The flipped dims are parted."""
    shape = node.results[0].shape
    return turned(node, tensors, [shifted(d % len(shape), -1, shape[d] - 1) for d in node.args[1]])


def roll(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """The rolled dims are parted; without dims all are whole, because the elements are rolled in one row."""
    shape = node.results[0].shape
    shifts, dims = (*node.args[1:], ())[:2]
    if not dims:
        return all_whole(node, tensors, "all elements are rolled in one row", "view")
    return turned(
        node, tensors,
        [shifted(d % len(shape), 1, -n % shape[d], True) for n, d in zip(shifts, dims, strict=True)],
    )  # fmt: skip


def turned(node: Node, tensors: Sequence[Tensor], reaches: Sequence[Reach]) -> Rule:
    """A rule for operand and result of one shape, of which some dims are moved in themselves."""
    dims, moved = range(len(node.results[0].shape)), [reach.label for reach in reaches]
    if len(set(moved)) < len(moved):
        return all_whole(node, tensors, "a dim is turned twice", "view")
    return labelled(
        node, tensors, [dims], [dims], "view", parted=moved, reaches=tuple(reaches),
        reason="turned dims are whole",
    )  # fmt: skip


def diagonal_part(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """tril and triu: the last two dims are parted."""
    rank = len(node.results[0].shape)
    dims = range(rank)
    last = [rank - 2, rank - 1]
    return labelled(
        node,
        tensors,
        [dims],
        [dims],
        "view",
        parted=last,
        reason="the last two dims are a matrix",
        linear=FIRST,
    )


def create(node: Node, tensors: Sequence[Tensor]) -> Rule:
    """Elements that depend only on their place: any cut."""
    return labelled(node, (), (), [range(len(node.results[0].shape))], "create")


RULES = {
    "view": view,
    "permute": permute,
    "expand": expand,
    "cat": cat,
    "slice": slice_of,
    "constant_pad_nd": pad,
    "flip": flip,
    "roll": roll,
    **dict.fromkeys(("select_scatter", "slice_scatter"), into),
    "repeat": repeat,
    "tril": diagonal_part,
    "triu": diagonal_part,
    **dict.fromkeys(("full", "arange", "eye", "linspace", "tril_indices", "triu_indices"), create),
}
