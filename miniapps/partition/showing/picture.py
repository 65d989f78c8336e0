"""Draws the stages of a plan: forward on the left, downwards; backward on the right, upwards.

A box is a stage; its colour and text show the axes that divide its work. Messages stand beside the arrow to the box
that needs them, or inside the box. Thin curves go around boxes. Values that the backward pass reads from the forward
pass have no arrows.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

from miniapps.partition.showing.staged import GIVEN, LEAVING, Edge, Stage, Stages
from miniapps.system.figures import INK, SERIES, styled

BOX, LINE, GAP = 0.36, 0.15, 0.2  # heights in inches: of a box, of a further line of text, between boxes
WIDTH, SIDE, MIDDLE = (
    5.2,
    0.3,
    0.3,
)  # widths in inches: of the picture, of the curves at its sides, between columns
IN = 0.15  # inches from the side of a box to its straight arrows
SHOWN = 34  # characters per line
ROWS_MOST = 60  # boxes in a column, at most


def size_text(nbytes: int) -> str:
    """Bytes with a unit: `1.5 MB`."""
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= least:
            return f"{nbytes / least:.3g} {unit}"
    return f"{nbytes} B"


def ranks_text(ranks: int) -> str:
    """`1 rank`, `4 ranks`."""
    return f"{ranks} rank{'s' * (ranks != 1)}"


def axes_text(axes: Sequence[str]) -> str:
    """Axes of a stage: `batch x heads`, or `whole on every rank`."""
    return " x ".join(axes) if axes else "whole on every rank"


def sent_text(edge: Edge) -> str:
    """`2 all-reduces over heads, 115 kB`."""
    calls = edge.kind if edge.calls == 1 else f"{edge.calls} {edge.kind}s"
    return f"{calls} over {', '.join(edge.axes)}, {size_text(edge.bytes)}"


def name_text(stage: Stage) -> str:
    """`blocks.0: q, k, v`."""
    return f"{stage.layer or 'step'}: {', '.join(stage.modules)}" if stage.modules else stage.layer or "step"


def as_text(found: Stages) -> str:
    """The picture in words: a sentence for each stage and for each of its messages."""
    lines = [f"Mesh {found.mesh}, {ranks_text(found.ranks)}; {found.operations} operations."]
    for k, stage in enumerate(found.stages):
        way = "Backward" if stage.backward else "Forward"
        lines.append(f"{way}, {name_text(stage)}: {axes_text(stage.axes)}, {stage.operations} operations.")
        lines += [f"To it: {sent_text(edge)}." for edge in found.edges if edge.target == k and edge.kind]
    lines += [
        f"At the end: {sent_text(edge)}." for edge in found.edges if edge.target == LEAVING and edge.kind
    ]
    return " ".join(lines)


def looks(found: Stages) -> dict[tuple[str, ...], int]:
    """The number of the colour of each set of axes, by first use."""
    sets = dict.fromkeys(stage.axes for stage in found.stages if stage.axes)
    return {axes: k for k, axes in enumerate(sets)}


@dataclass(frozen=True)
class Layout:
    """Places of stages: `row`, `top` and `height` of a box in inches from the top, by stage; `total` height. `inside`,
    `beside`: lines about messages, by target."""

    row: dict[int, int]
    top: dict[int, float]
    height: dict[int, float]
    total: float
    inside: dict[int, list[str]]
    beside: dict[int, list[str]]


def layout(found: Stages) -> Layout:
    """Rows from the top: sources and outputs, then stages; the last forward stage is beside the first backward one."""
    ways = [[k for k, s in enumerate(found.stages) if s.backward == way] for way in (False, True)]
    rows = max(map(len, ways))
    row = {k: rows - len(ways[0]) + i for i, k in enumerate(ways[0])}
    row |= {k: rows - 1 - i for i, k in enumerate(ways[1])}
    inside: dict[int, list[str]] = {}
    beside: dict[int, list[str]] = {}
    for edge in found.edges:
        if edge.kind:
            first = bool(ways[0]) and edge.target == ways[0][0]
            stays = edge.source == edge.target or (edge.source == GIVEN and not first)
            (inside if stays else beside).setdefault(edge.target, []).append(sent_text(edge))
    height = {k: BOX + LINE * len(inside.get(k, ())) for k in row}
    above = [0] * (rows + 1)  # lines in the gap above a row
    above[0] = len(beside.get(LEAVING, ()))
    for k, i in row.items():
        place = i + found.stages[k].backward
        above[place] = max(above[place], len(beside.get(k, ())))
    tops, y = [], BOX
    for i in range(rows):
        y += GAP + LINE * above[i]
        tops.append(y)
        y += max(height[k] for k in row if row[k] == i)
    y += GAP + LINE * above[rows] if above[rows] else 0
    return Layout(row, {k: tops[i] for k, i in row.items()}, height, y, inside, beside)


def drawable(found: Stages) -> bool:
    """Whether the picture has no more than ROWS_MOST boxes in a column."""
    backward = sum(stage.backward for stage in found.stages)
    return 0 < max(backward, len(found.stages) - backward) <= ROWS_MOST


def height_in(found: Stages) -> float:
    """Inches of the picture."""
    return layout(found).total + 0.1


def plot(axes, found: Stages) -> None:
    """Draw into axes of matplotlib that are WIDTH x `height_in` inches."""
    where, colours = layout(found), looks(found)
    axes.set(xlim=(0, WIDTH), ylim=(where.total + 0.05, -0.05))
    axes.set_axis_off()
    wide = (WIDTH - 2 * SIDE - MIDDLE) / 2
    left = {False: SIDE, True: SIDE + wide + MIDDLE}
    _box(axes, left[False], 0, wide, BOX, "", ["parameters, inputs", "forward: downwards"])
    _box(axes, left[True], 0, wide, BOX, "", [f"loss, {found.gradients} gradients", "backward: upwards"])
    first = min(where.row, key=lambda k: (found.stages[k].backward, where.row[k]))
    _pointed(axes, (SIDE + IN, BOX), (SIDE + IN, where.top[first]), bold=first in where.beside)
    last = min(where.row, key=lambda k: (not found.stages[k].backward, where.row[k]))
    x = left[found.stages[last].backward] + IN
    _pointed(axes, (x, where.top[last]), (x, BOX), bold=LEAVING in where.beside)
    for k, stage in enumerate(found.stages):
        colour = SERIES[colours[stage.axes] % len(SERIES)] if stage.axes else ""
        lines = [name_text(stage), axes_text(stage.axes), *where.inside.get(k, ())]
        _box(axes, left[stage.backward], where.top[k], wide, where.height[k], colour, lines)
    for edge in found.edges:
        if edge.source != edge.target:
            _arrow(axes, found, where, edge, left, wide)
    for k, lines in where.beside.items():
        if k == LEAVING:
            x, y = left[True], BOX + GAP / 2
        else:
            stage = found.stages[k]
            x = left[stage.backward]
            y = where.top[k] - GAP / 2 - LINE * len(lines)
            if stage.backward:
                y = where.top[k] + where.height[k] + GAP / 2
        for i, text in enumerate(lines):
            axes.text(
                x + wide / 2 + 0.06, y + LINE * (i + 0.5), _short(text, SHOWN + 8), fontsize=6.5, va="center",
                ha="center", color=INK, bbox=dict(facecolor="none", edgecolor="none"),
            )  # fmt: skip


def _box(axes, x: float, y: float, width: float, height: float, colour: str, lines: Sequence[str]) -> None:
    """A box with lines of text, the first one bold."""
    corners = [x, x + width, x + width, x], [y, y, y + height, y + height]
    if colour:
        axes.fill(*corners, color=colour, alpha=0.16, linewidth=0)
    axes.plot([*corners[0], x], [*corners[1], y], color=colour or INK, linewidth=1.1)
    for i, text in enumerate(lines):
        axes.text(
            x + width / 2, y + 0.03 + LINE * (i + 0.55), _short(text, SHOWN + 10 * (i > 0)),
            fontsize=7.5 if i == 0 else 6.5,
            ha="center", va="center", color=INK, weight="bold" if i == 0 else "normal",
        )  # fmt: skip


def _arrow(axes, found: Stages, where: Layout, edge: Edge, left, wide: float) -> None:
    """Draw the arrow of an edge: straight to a neighbour, around the boxes between others. Of arrows from forward to
    backward, draw only the one at the turn."""
    bold = bool(edge.kind)
    if edge.target == LEAVING or edge.source == GIVEN:
        return
    source, target = found.stages[edge.source], found.stages[edge.target]
    starts, ends = where.top[edge.source], where.top[edge.target]
    down = where.row[edge.target] - where.row[edge.source]
    x = left[target.backward]
    if source.backward != target.backward:
        if where.row[edge.target] == where.row[edge.source] == max(where.row.values()):
            _pointed(axes, (left[False] + wide, ends + BOX / 2), (left[True], ends + BOX / 2), bold)
    elif down == 1:
        _pointed(axes, (x + IN, starts + where.height[edge.source]), (x + IN, ends), bold)
    elif down == -1:
        _pointed(axes, (x + IN, starts), (x + IN, ends + where.height[edge.target]), bold)
    else:
        side = x + wide if target.backward else x
        bend = 0.12 / max(abs(ends - starts), 0.5) + 0.05
        _pointed(axes, (side, starts + where.height[edge.source] / 2), (side, ends + BOX / 2), bold, bend)


def _pointed(
    axes, start: tuple[float, float], end: tuple[float, float], bold: bool, bend: float = 0.0
) -> None:
    """Draw an arrow, bold for messages."""
    look = dict(
        arrowstyle="-|>", color=INK, linewidth=1.1 if bold else 0.6, mutation_scale=7, shrinkA=0, shrinkB=0,
        connectionstyle=f"arc3,rad={bend}",
    )  # fmt: skip
    axes.annotate("", end, start, arrowprops=look)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def svg(found: Stages, title: str) -> str:
    """The picture as an SVG file on white, with text as text. Raises ImportError without matplotlib."""
    settings = {
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "text.parse_math": False,
        "svg.hashsalt": "plan",
    }
    head = 0.3
    with styled(settings) as Figure:
        tall = height_in(found) + head
        canvas = Figure(figsize=(WIDTH, tall), facecolor="white")
        canvas.text(0.02, 1 - head / 2 / tall, title, fontsize=9, weight="bold", va="center")
        plot(canvas.add_axes((0, 0, 1, 1 - head / tall)), found)
        buffer = io.StringIO()
        canvas.savefig(
            buffer, format="svg", metadata={"Date": None, "Title": title, "Description": as_text(found)}
        )
    return buffer.getvalue()
