"""Pictures of orderings: the trees by which elements are summed, and the schedule. `draw NAME` writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernels.allreduce.cost import cost
from kernels.allreduce.instruments import svg
from kernels.allreduce.instruments.draw_schedule import RANKS, schedule_piece
from kernels.allreduce.instruments.draw_schedule import signs as schedule_signs
from kernels.allreduce.instruments.draw_tree import LEAVES, tree_piece
from kernels.allreduce.instruments.draw_tree import signs as tree_signs
from kernels.allreduce.instruments.svg import Piece
from kernels.allreduce.reduction import Reduction
from kernels.allreduce.schedule import Schedule
from kernels.allreduce.tree import trees_with_makers
from kernels.guarantees import MEANINGS, ChoiceError
from kernels.tree import Tree, depth, expression, leaves

MESSAGES = 20_000  # at most, so that browsers can show them
TREES = 8  # different trees shown together, at most; half as many if they have more terms than this
SPOKEN = 16  # terms, at most, of a tree that is described in words too
KINDS = ("both", "tree", "schedule")


@dataclass(frozen=True)
class Distinct:
    """A tree, the rank that makes each addition (None: differs between elements), and its elements, as spans [first,
    stop)."""

    tree: Tree
    makers: list[int | None]
    spans: list[tuple[int, int]]

    def elements(self, n: int) -> str:
        """Its elements of a vector of n, in words."""
        count = sum(stop - start for start, stop in self.spans)
        if count == n:
            return "every element"
        spans = [
            str(start) if stop - start == 1 else f"{start}\u2026{stop - 1}" for start, stop in self.spans
        ]
        few = ", ".join(spans[:4]) + (", \u2026" if spans[4:] else "")
        return f"element{'' if count == 1 else 's'} {few}"


def tree_svg(tree: Tree, heading: str, lines: Sequence[str] = ()) -> str:
    """A picture of any tree, such as a discovered one; `lines` stand below the heading.

    Raises ChoiceError for a tree of too many terms.
    """
    _few_enough(len(leaves(tree)), LEAVES, "terms")
    piece = tree_piece(tree)
    return _page(heading, lines, [piece], [tree_signs("term", False, [None])], {}, [])


def ordering_svg(
    reduction: Reduction,
    schedule: Schedule,
    n: int,
    what: str = "both",
    element: int | None = None,
    nodes: Sequence[int] | None = None,
) -> str:
    """A picture of the ordering of `reduction` for a vector of n elements: its trees (of one `element`, or the
    different ones of all), its schedule, or both. The schedule shows `nodes`. Raises ChoiceError if the picture would
    be too large."""
    size, promised = schedule.size, reduction.guarantee
    pieces, legends, lines = [], [], [f"Promises {promised!r}: {MEANINGS[promised]}."]
    palettes, spoken = {}, []
    owners = {leaf: rank for rank in range(size) for leaf in schedule.leaves(rank)}
    own = all(schedule.leaves(rank) == (rank,) for rank in range(size))
    heading = f"{reduction.label} on {_count(size, 'rank')}"
    if not own:
        heading += f", {_count(len(owners), 'block')}"
    if nodes is not None:
        heading += f", {_count(len(set(nodes)), 'node')}"
    if what != "schedule":
        _few_enough(len(owners), LEAVES, "terms")
        trees = distinct(schedule, n, element)
        shown = trees[: TREES if len(owners) <= TREES else TREES // 2]
        small = len(shown) > 1
        drawn = [
            tree_piece(d.tree, d.makers, owners, (d.elements(n), f"depth {depth(d.tree)}"), small)
            for d in shown
        ]
        row = svg.flow(drawn, svg.WIDEST, 28)
        if len(owners) <= SPOKEN:
            spoken = [f"{d.elements(n)}: {expression(d.tree)}." for d in shown]
        rest = len(trees) - len(shown)
        more = f"; {rest} more for other elements: --element" if rest else ""
        pieces.append(_titled(f"Reduction {'trees' if trees[1:] else 'tree'}{more}", row))
        term = "contribution of a rank" if own else "contribution of a block, in the colour of its owner"
        legends.append(tree_signs(term, True, {maker for d in shown for maker in d.makers}))
        palettes["r"] = size
    if what != "tree":
        _few_enough(size, RANKS, "ranks")
        _few_enough(cost(schedule, n, 1).messages, MESSAGES, "messages")
        pieces.append(_titled("Schedule, time downward", schedule_piece(schedule, n, nodes)))
        legends.append(schedule_signs(schedule, n))
        lines.append(_counts(schedule, n, reduction))
        palettes["c"] = schedule.chunks
    return _page(heading, lines, pieces, legends, palettes, spoken)


def distinct(schedule: Schedule, n: int, element: int | None = None) -> list[Distinct]:
    """The different trees of the elements of a vector of n, or that of one element, as rank 0 evaluates them."""
    trees: dict[str, Distinct] = {}
    for chunk, (tree, makers) in enumerate(trees_with_makers(schedule)):
        start, stop = schedule.bounds(n, chunk)
        if element is not None:
            start, stop = max(start, element), min(stop, element + 1)
        if start >= stop:
            continue
        before = trees.get(expression(tree), Distinct(tree, list(makers), []))
        both = [a if a == b else None for a, b in zip(before.makers, makers, strict=True)]
        spans = [*before.spans, (start, stop)]
        if before.spans and before.spans[-1][1] == start:
            spans[-2:] = [(before.spans[-1][0], stop)]
        trees[expression(tree)] = Distinct(tree, both, spans)
    return list(trees.values())


def _counts(schedule: Schedule, n: int, reduction: Reduction) -> str:
    c = cost(schedule, n, reduction.element_bytes, reduction.total_element_bytes)
    return (
        f"{_count(c.rounds, 'round')}, {_count(c.messages, 'message')}; a vector of {_count(n, 'element')} in "
        f"{_count(schedule.chunks, 'chunk')}; round by round, the busiest rank moves "
        f"{c.critical_bytes / (n * reduction.dtype.itemsize):.3g} times the vector."
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _few_enough(count: int, most: int, what: str) -> None:
    if count > most:
        raise ChoiceError(
            f"{count} {what} are too many for a picture: at most {most}. `tree` and `cost` take more"
        )


def _titled(heading: str, piece: Piece) -> Piece:
    return Piece(
        max(piece.width, svg.width_of(heading, 13)),
        piece.height + 28,
        svg.text(0, 13, heading, 13, "ink bold") + svg.moved(0, 28, piece.body),
    )


def _page(heading, lines, pieces, legends, palettes, spoken) -> str:
    """The document; `spoken` is for screen readers only."""
    width = max(360.0, *(piece.width for piece in pieces))
    top = [svg.paragraph(heading, width, 17, "ink bold")]
    caption = [svg.paragraph(line, width, 12, "soft") for line in lines]
    y, body = top[0].height, [top[0].body]
    for paragraph in caption:
        body.append(svg.moved(0, y + 2, paragraph.body))
        y += paragraph.height
    head = Piece(max(p.width for p in top + caption), y, "".join(body))
    parts = [head]
    for piece, entries in zip(pieces, legends, strict=True):
        parts += [piece, svg.legend(entries, width)]
    return svg.page(parts, heading, " ".join([*lines, *spoken]), palettes)
