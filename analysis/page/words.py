"""Labels of groups and cases, which are keys, put into the words for people."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from html import escape, unescape

from analysis.page.sections import Mark, Section, Table

TEXT = re.compile(r"<text([^>]*)>([^<]*)</text>")
LETTER, MARGIN = 0.55, 4.0  # width of a letter in its height, about; what stays free at the edge of a drawing


def in_words(section: Section, words: Mapping[str, str]) -> Section:
    """`section` with every label that is a key of `words` ({label: words}) replaced, wherever text is shown or
    read aloud, in drawings too; data of figures keep the labels."""
    if not words:
        return section
    spoken, aloud = _speaker(words), _speaker({label: escape(text) for label, text in words.items()})

    def drawn(svg: str) -> str:
        """With the words in the drawing and in what is read aloud; a text wider than the drawing is squeezed."""
        opening, end, rest = svg.partition(">")
        box = re.search(r'viewBox="[\d.-]+ [\d.-]+ ([\d.]+) ', opening)
        room = float(box[1]) if box else 0.0
        return aloud(opening) + end + TEXT.sub(lambda text: _spelled(text, aloud(text[2]), room), rest)

    return replace(
        section,
        nothing=spoken(section.nothing),
        intro=spoken(section.intro),
        figures=[
            replace(figure, title=spoken(figure.title), svg=drawn(figure.svg), caption=spoken(figure.caption),
                    legend=tuple((i, spoken(text)) for i, text in figure.legend))
            for figure in section.figures
        ],
        tables=tables_in_words(section.tables, words),
        items=[
            (spoken(title), [(what, spoken(text)) for what, text in lines], command)
            for title, lines, command in section.items
        ],
        notes=list(map(spoken, section.notes)),
    )  # fmt: skip


def _spelled(text: re.Match[str], words: str, room: float) -> str:
    """The element `text` of a drawing with `words` as its text, in the `room` that there is up to the right edge."""
    if words == text[2]:
        return text[0]
    size, x = (re.search(pattern, text[1]) for pattern in (r"font-size: ([\d.]+)px", r'x="([\d.-]+)"'))
    if size is None or x is None:
        return f"<text{text[1]}>{words}</text>"
    left = room - float(x[1]) - MARGIN
    wide = LETTER * float(size[1]) * len(unescape(words))
    squeezed = f' textLength="{left:.0f}" lengthAdjust="spacingAndGlyphs"' if wide > left > 0 else ""
    return f"<text{text[1]}{squeezed}>{words}</text>"


def tables_in_words(tables: Iterable[tuple[str, Table]], words: Mapping[str, str]) -> list[tuple[str, Table]]:
    """(title, table) each with every label that is a key of `words` ({label: words}) replaced."""
    spoken = _speaker(words)
    return [(spoken(title), _table(table, spoken)) for title, table in tables]


def _speaker(words: Mapping[str, str]) -> Callable[[str], str]:
    """A function that replaces every label in a text."""
    if not words:
        return str
    longest_first = sorted(words, key=len, reverse=True)  # a label may begin like a longer one
    labels = re.compile("|".join(map(re.escape, longest_first)))
    return lambda text: labels.sub(lambda match: words[match[0]], text)


def _table(table: Table, spoken: Callable[[str], str]) -> Table:
    def cell(content: object) -> object:
        if isinstance(content, Mark):
            return replace(content, text=spoken(content.text), note=spoken(content.note))
        return spoken(content) if isinstance(content, str) else content

    return replace(
        table, columns=tuple(map(spoken, table.columns)), numbers=tuple(map(spoken, table.numbers)),
        rows=[tuple(map(cell, row)) for row in table.rows], by=spoken(table.by),
    )  # fmt: skip
