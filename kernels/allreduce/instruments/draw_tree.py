"""Drawing of a reduction tree: terms in a row, every addition over its terms, the total on top."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kernels.allreduce.instruments import svg
from kernels.allreduce.instruments.svg import Piece
from kernels.tree import Tree, depth, fold, leaves, nodes

LEAVES = 128  # at most, to be distinguishable


def tree_piece(
    tree: Tree,
    makers: Sequence[int | None] | None = None,
    owners: Mapping[int, int] | None = None,
    caption: Sequence[str] = (),
    small: bool = False,
) -> Piece:
    """A tree and its caption below. Colours are the classes `r0`, `r1`, ... of the ranks.

    `makers`: the rank that makes each addition, in the order of `kernels.tree.nodes`, None where several do; `owners`:
    the rank of each term. Without them all signs have the colour of the text. `small`: for one of several trees.
    """
    count, steps = len(leaves(tree)), depth(tree)
    across = min(27.0, 360 / count) if small else 30 if count <= 16 else 20 if count <= 32 else 900 / count
    up = min(44.0, (220 if small else 380) / max(1, steps))
    leaf_radius, radius = min(11.0, 0.43 * across), min(11.0, 0.43 * across, 0.43 * up)
    words = max((svg.width_of(line, 12) for line in caption), default=0)
    width = max(count * across, words)
    left = (width - (count - 1) * across) / 2
    first = max(up, leaf_radius + radius + 5)  # the lowest additions stay clear of the terms
    floor = radius + 4 + (first + (steps - 1) * up if steps else 0)
    node_makers = iter(makers or [None] * len(nodes(tree)))
    lines: list[str] = []
    signs: list[str] = []
    place = iter(range(count))

    def level(height: int) -> float:
        return floor - (first + (height - 1) * up if height else 0)

    def leaf(index: int) -> tuple[float, float, str]:
        x, colour = left + next(place) * across, _colour((owners or {}).get(index))
        signs.append(_leaf(x, floor, leaf_radius, str(index), colour, owners))
        return x, 0, colour

    def node(children: list) -> tuple[float, float, str]:
        x, height = sum(c[0] for c in children) / len(children), 1 + max(c[1] for c in children)
        maker = next(node_makers)
        colour, y = _colour(maker), level(height)
        for from_x, below, of in children:
            path = f"M{svg.number(from_x)} {svg.number(level(below))}V{svg.number(y)}H{svg.number(x)}"
            lines.append(svg.element("path", d=path, class_=f"{of} line edge"))
        signs.append(_node(x, y, radius, maker, colour, makers is not None))
        return x, height, colour

    fold(tree, leaf, node)
    below = [
        svg.text(width / 2, floor + leaf_radius + 20 + 17 * i, line, 12, "soft middle")
        for i, line in enumerate(caption)
    ]
    weight = 2 if across >= 12 else 1
    body = svg.element("g", *lines, stroke_width=weight) + "".join(signs) + "".join(below)
    return Piece(width, floor + leaf_radius + 4 + 17 * len(caption) + (4 if caption else 0), body)


def signs(term: str, coloured: bool, makers: Collection[int | None]) -> list[tuple[Piece, str]]:
    """The legend: `term` names a term; `coloured`: it has the colour of a rank; `makers`: the ranks that add."""
    entries = [(Piece(16, 16, _leaf(8, 8, 8, "0", "r0" if coloured else "soft", None)), term)]
    if any(maker is not None for maker in makers):
        sign = Piece(16, 16, _node(8, 8, 8, 0, "r0", False))
        entries.append((sign, "addition, by the rank of that number and colour"))
    if None in makers:
        words = "addition, by different ranks for different elements" if coloured else "addition"
        entries.append((Piece(16, 16, _node(8, 8, 8, None, "soft", False)), words))
    return entries


def _colour(rank: int | None) -> str:
    return "soft" if rank is None else f"r{rank}"


def _leaf(
    x: float, y: float, radius: float, label: str, colour: str, owners: Mapping[int, int] | None
) -> str:
    owner = owners.get(int(label)) if owners else None
    tooltip = (
        [svg.title(f"contribution {label}" + (f" of rank {owner}" if owner is not None else ""))]
        if owners
        else []
    )
    square = svg.element(
        "rect",
        x=x - radius,
        y=y - radius,
        width=2 * radius,
        height=2 * radius,
        rx=0.25 * radius,
        class_=colour,
    )
    return svg.element("g", *tooltip, square, _label(x, y, radius, label), class_="leaf")


def _node(x: float, y: float, radius: float, maker: int | None, colour: str, titled: bool) -> str:
    by = "several ranks, each for its chunks" if maker is None else f"rank {maker}"
    tooltip = [svg.title(f"added by {by}")] if titled else []
    circle = svg.element("circle", cx=x, cy=y, r=radius, class_=colour)
    return svg.element(
        "g", *tooltip, circle, _label(x, y, radius, "" if maker is None else str(maker)), class_="node"
    )


def _label(x: float, y: float, radius: float, label: str) -> str:
    """The text of a term, if there is room in its sign."""
    size = min(radius + 2, 1.9 * radius / (svg.LETTER * max(1, len(label))))
    return svg.text(x, y + 0.36 * size, label, size, "paper middle bold") if label and size >= 7 else ""
