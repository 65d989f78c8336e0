"""Figures as SVG that lives inside the report: text stays text, and colours follow the page, light or dark.

Matplotlib draws with a few marker colours that stand for roles; in the SVG they become CSS variables with the
light colour as fallback, so that a figure saved on its own is readable too.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from miniapps.system.figures import INK, SERIES, styled
from miniapps.untrusted.text import printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.typing import RcKeyType

WIDTH_IN = 5.2  # so narrow that letters stay readable when the figure is scaled to a phone
FONT_PT = 10
LABEL_MOST = 100  # characters of a label at an axis: more would leave no room for the axes

# The style sheet of the report holds a brighter set of SERIES for dark backgrounds.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
GLYPHS = ("●", "■", "▲", "◆", "▼", "✚", "✖", "◀")
FAINT = "#d1d2d3"  # the grid
_ROLES = {INK: "var(--ink, #1a1b1c)", FAINT: "var(--rule, #d1d2d3)"} | {
    colour: f"var(--s{i}, {colour})" for i, colour in enumerate(SERIES)
}


@dataclass(frozen=True)
class Figure:
    """One figure: `svg` to be put into HTML, `caption` says what to see, `legend` (index of the series,
    label), `data` what it shows: a row for each point that is drawn, unrounded. `name` is unique in a report; `plot`,
    `height_in` and `grid` are what `draw` drew."""

    title: str
    svg: str
    caption: str
    legend: tuple[tuple[int, str], ...]
    name: str
    data: pd.DataFrame | None
    plot: Callable
    height_in: float
    grid: tuple[int, int]


def series(index: int) -> dict[str, str]:
    """Colour and marker of a series, as keywords of matplotlib."""
    return {"color": SERIES[index % len(SERIES)], "marker": MARKERS[index % len(MARKERS)]}


def draw(
    name: str, plot: Callable, height_in: float = 3.1, alt: str = "", grid: tuple[int, int] = (1, 1)
) -> str:
    """The SVG of what `plot(axes)` draws; of a `grid` of rows and columns `axes` is an array. `name` makes ids
    unique in a page that holds several figures; `alt` is read aloud in place of the picture."""
    with styled(_STYLE | {"svg.hashsalt": name}) as Canvas:
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        canvas = Canvas(figsize=(WIDTH_IN, height_in), layout="constrained")
        FigureCanvasSVG(canvas)
        plot(canvas.subplots(*grid))
        _escape(canvas)
        layout = canvas.get_layout_engine()
        assert layout is not None  # it was asked for above
        layout.execute(canvas)
        canvas.set_layout_engine(None)  # or else `savefig` draws once for nothing
        buffer = io.StringIO()
        canvas.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return _inline(buffer.getvalue(), name, alt)


def figure_of(name, title, plot, caption, height, legend, grid=(1, 1), data=None) -> Figure:
    """A figure whose `caption` is read aloud with its `title`; the others as `draw` and `Figure` take them."""
    drawing = draw(name, plot, height, f"{title}. {caption}", grid)
    return Figure(title, drawing, caption, tuple(legend), name, data, plot, height, grid)


def picture(figure: Figure, form: str) -> bytes:
    """`figure` as a file of its own, "svg" or "png", on white, with its title and legend."""
    with styled(_STYLE | {"svg.hashsalt": figure.name, "savefig.dpi": 200}) as Canvas:
        from matplotlib.lines import Line2D

        legend_in = 0.1 + 0.22 * len(figure.legend)
        heights = [figure.height_in + 0.3, legend_in]
        canvas = Canvas(figsize=(WIDTH_IN, sum(heights)), layout="constrained", facecolor="white")
        above, below = canvas.subfigures(2, 1, squeeze=False, height_ratios=heights).ravel()
        figure.plot(above.subplots(*figure.grid))
        above.suptitle(figure.title, x=0.01, ha="left", fontsize=FONT_PT)
        looks = [(text, series(index)) for index, text in figure.legend]
        handles = [Line2D([], [], linestyle="none", label=text, color=look["color"], marker=look["marker"])
                   for text, look in looks]  # fmt: skip
        below.legend(handles=handles, loc="upper left", fontsize=9)
        _escape(canvas)
        buffer = io.BytesIO()
        canvas.savefig(buffer, format=form, metadata={"Date": None} if form == "svg" else None)
    return buffer.getvalue()


def power_of_ten(value: float) -> str:
    """`10⁻¹⁶` for 1e-16."""
    return "10" + str(round(math.log10(value))).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


_STYLE: dict[RcKeyType, Any] = {
    "svg.fonttype": "none", "text.parse_math": False, "font.size": FONT_PT, "font.family": "sans-serif",
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.8, "axes.grid": True,
    "grid.color": FAINT, "grid.linewidth": 0.6, "axes.axisbelow": True, "lines.markersize": 4.5,
    "lines.linewidth": 1.0, "legend.frameon": False,
}  # fmt: skip


def _escape(canvas) -> None:
    """Make all text of a drawn figure `printable`: fonts and XML have no control characters, nor halves of pairs."""
    from matplotlib.axis import Axis
    from matplotlib.text import Text

    def escaped(format_ticks: Callable) -> Callable:
        return lambda values: [_short(printable(label, keep="\n")) for label in format_ticks(values)]

    for axes in canvas.axes:
        for axis in (axes.xaxis, axes.yaxis):  # which set their labels once more when they are drawn
            axis.major.formatter.format_ticks = escaped(axis.major.formatter.format_ticks)
    below = [canvas]
    while below:
        artist = below.pop()
        if isinstance(artist, Text):
            artist.set_text(printable(artist.get_text(), keep="\n"))
        # Ticks, which are many, have their text from `format_ticks`; to list them is to make them.
        below += [artist.label] if isinstance(artist, Axis) else artist.get_children()


def _short(label: str) -> str:
    return label if len(label) <= LABEL_MOST else f"{label[: LABEL_MOST - 1]}…"


def _inline(text: str, name: str, alt: str) -> str:
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'\b(id)="([^"]*)"', rf'\1="{name}-\2"', text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", text)
    for colour, role in _ROLES.items():
        text = text.replace(colour, role)
    # The page's own font: matplotlib names those of this machine.
    text = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
    label = alt.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1).strip()
