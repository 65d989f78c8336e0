"""SVG without a library: elements, text, colours that are readable on light and dark, and pages made of pieces.

All lengths are in pixels. The output depends on the arguments alone, to the byte.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

MARGIN = 20
WIDEST = 960  # of a row of pieces, unless one piece is wider
LETTER = 0.6  # width of a letter over the font size, rather too much than too little

# From blue over red to yellow, ever lighter, so that the order of two colours shows to the colour-blind too. At least
# 3:1 against the paper.
_RAMPS = {
    "light": ("#2b3a9e", "#7a2ba6", "#b8306f", "#d0512a", "#c07800"),
    "dark": ("#5b80f5", "#ae72f5", "#f878b0", "#ffa266", "#ffd95e"),
}
_GROUNDS = {
    "light": {"paper": "#ffffff", "ink": "#1a1b1c", "soft": "#5d6066", "faint": "#d1d2d3", "band": "#f3f4f6"},
    "dark": {"paper": "#15171a", "ink": "#eceded", "soft": "#a3a7ad", "faint": "#45484d", "band": "#1e2125"},
}
_FORMS = """text{font-family:system-ui,-apple-system,"Segoe UI",sans-serif}
text[class],path.flat,rect.flat,circle.flat{stroke:none}
.middle{text-anchor:middle}
.end{text-anchor:end}
.bold{font-weight:600}
.line{fill:none}
.dashed{stroke-dasharray:5 3}
"""


@dataclass(frozen=True)
class Piece:
    """Something drawn, its upper left corner at the origin."""

    width: float
    height: float
    body: str


def number(x: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    text = f"{x:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def element(name: str, *content: str, **attributes) -> str:
    """`<name attributes>content</name>`; `content` is SVG, `attributes` are numbers or text. `class_` is class."""
    attribute_text = "".join(
        f" {key.rstrip('_').replace('_', '-')}={quoteattr(_clean(value) if isinstance(value, str) else number(value))}"
        for key, value in attributes.items()
    )
    return f"<{name}{attribute_text}>{''.join(content)}</{name}>" if content else f"<{name}{attribute_text}/>"


def text(x: float, y: float, string: str, size: float = 12, class_: str = "ink") -> str:
    """A line of text whose letters stand on y."""
    return element("text", escape(_clean(string)), x=x, y=y, font_size=size, class_=class_)


def title(string: str) -> str:
    """The text that browsers show beside the pointer and screen readers read aloud."""
    return element("title", escape(_clean(string)))


def moved(x: float, y: float, *body: str) -> str:
    """`body` with its origin at (x, y)."""
    return element("g", *body, transform=f"translate({number(x)} {number(y)})")


def width_of(string: str, size: float) -> float:
    """The approximate width of a line of text."""
    return len(string) * size * LETTER


def _clean(string: str) -> str:
    """Without the characters that XML cannot hold."""
    return re.sub("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", string)


def paragraph(string: str, width: float, size: float = 12, class_: str = "ink") -> Piece:
    """Text in lines no wider than `width`."""
    lines = textwrap.wrap(string, max(8, int(width / (size * LETTER)))) or [""]
    step = round(1.4 * size)
    body = "".join(text(0, size + i * step, line, size, class_) for i, line in enumerate(lines))
    return Piece(max(width_of(line, size) for line in lines), step * len(lines), body)


def flow(pieces: Sequence[Piece], width: float, gap: float) -> Piece:
    """Pieces side by side, their lower ends level, in as many rows as `width` requires."""
    rows: list[list[Piece]] = [[]]
    for piece in pieces:
        if rows[-1] and sum(p.width + gap for p in rows[-1]) + piece.width > width:
            rows.append([])
        rows[-1].append(piece)
    body, y, widest = [], 0.0, 0.0
    for row in rows:
        x, high = 0.0, max((p.height for p in row), default=0)
        for piece in row:
            body.append(moved(x, y + high - piece.height, piece.body))
            x += piece.width + gap
        y += high + gap
        widest = max(widest, x - gap)
    return Piece(widest, y - gap, "".join(body))


def legend(entries: Sequence[tuple[Piece, str]], width: float) -> Piece:
    """Signs (16 high) and their meanings."""
    pieces = [
        Piece(
            sign.width + 6 + width_of(words, 11) + 6,
            16,
            sign.body + text(sign.width + 6, 12, words, 11, "soft"),
        )
        for sign, words in entries
    ]
    return flow(pieces, width, 8)


def page(pieces: Sequence[Piece], heading: str, description: str, palettes: dict[str, int]) -> str:
    """The whole document: pieces one below the other.

    `palettes`: the number of colours by letter; elements use them as classes `<letter>0`, `<letter>1`, ...
    """
    width = max(piece.width for piece in pieces) + 2 * MARGIN
    body, y = [], float(MARGIN)
    for piece in pieces:
        body.append(moved(MARGIN, y, piece.body))
        y += piece.height + 16
    height = y - 16 + MARGIN
    document = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(width)} {number(height)}" '
        f'width="{number(width)}" height="{number(height)}" role="img">\n'
        + title(heading)
        + "\n"
        + element("desc", escape(_clean(description)))
        + "\n"
        + element("style", _style(palettes))
        + "\n"
        + element("rect", width=width, height=height, class_="paper")
        + "\n"
        + "\n".join(body)
        + "\n</svg>\n"
    )
    # ASCII, so that it can be written in any encoding.
    return document.encode("ascii", "xmlcharrefreplace").decode()


def _style(palettes: dict[str, int]) -> str:
    dark = f"@media (prefers-color-scheme:dark){{\n{_colours('dark', palettes)}}}\n"
    return f"\n{_colours('light', palettes)}{dark}{_FORMS}"


def _colours(ground: str, palettes: dict[str, int]) -> str:
    rules = [f".{role}{{fill:{colour};stroke:{colour}}}" for role, colour in _GROUNDS[ground].items()]
    for letter, count in palettes.items():
        colours = (_ramp(_RAMPS[ground], i / max(1, count - 1)) for i in range(count))
        rules += [f".{letter}{i}{{fill:{colour};stroke:{colour}}}" for i, colour in enumerate(colours)]
    return "\n".join(rules) + "\n"


def _ramp(anchors: Sequence[str], at: float) -> str:
    """The colour at a place between 0 and 1."""
    place = at * (len(anchors) - 1)
    low = min(int(place), len(anchors) - 2)
    parts = zip(*(bytes.fromhex(anchor[1:]) for anchor in anchors[low : low + 2]), strict=True)
    return "#" + bytes(round(a + (b - a) * (place - low)) for a, b in parts).hex()
