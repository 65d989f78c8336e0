"""Labels of groups in a section of the report, which are keys, put into the words for people."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from html import escape

from analysis.page.sections import Mark, Section, Table


def in_words(section: Section, words: Mapping[str, str]) -> Section:
    """`section` with every label that is a key of `words` ({label: words}) replaced, wherever text is shown or
    read aloud; drawings and data of figures keep the labels."""
    if not words:
        return section
    longest_first = sorted(words, key=len, reverse=True)  # a label may begin like a longer one
    labels = re.compile("|".join(map(re.escape, longest_first)))

    def spoken(text: str) -> str:
        return labels.sub(lambda match: words[match[0]], text)

    def drawn(svg: str) -> str:
        """With the words in what is read aloud, but not in the drawing, which has room for the labels only."""
        opening, end, rest = svg.partition(">")
        return labels.sub(lambda match: escape(words[match[0]]), opening) + end + rest

    return replace(
        section,
        nothing=spoken(section.nothing),
        intro=spoken(section.intro),
        figures=[
            replace(figure, title=spoken(figure.title), svg=drawn(figure.svg), caption=spoken(figure.caption),
                    legend=tuple((i, spoken(text)) for i, text in figure.legend))
            for figure in section.figures
        ],
        tables=[(spoken(title), _table(table, spoken)) for title, table in section.tables],
        items=[
            (spoken(title), [(what, spoken(text)) for what, text in lines], command)
            for title, lines, command in section.items
        ],
        notes=list(map(spoken, section.notes)),
    )  # fmt: skip


def _table(table: Table, spoken: Callable[[str], str]) -> Table:
    def cell(content: object) -> object:
        if isinstance(content, Mark):
            return replace(content, text=spoken(content.text), note=spoken(content.note))
        return spoken(content) if isinstance(content, str) else content

    return replace(
        table, columns=tuple(map(spoken, table.columns)), numbers=tuple(map(spoken, table.numbers)),
        rows=[tuple(map(cell, row)) for row in table.rows],
    )  # fmt: skip
