"""What the report is made of, and the terminal too: headings, tables and figures."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from analysis.report.svg import Figure

FOLD_FROM = 16  # rows of a table, above which it is folded
OPEN = 3  # tables of a section, above which all are folded


@dataclass(frozen=True)
class Table:
    """Rows under `columns`; those in `numbers` are set to the right. A titled table beside figures can be
    folded, and is at first where it is `folded`."""

    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]
    numbers: tuple[str, ...] = ()
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """One heading of the report. Without figures, tables and items it says `nothing`, which is a sentence."""

    title: str
    nothing: str
    intro: str = ""
    figures: list[Figure] = field(default_factory=list)
    tables: list[tuple[str, Table]] = field(default_factory=list)
    items: list[tuple[str, list[tuple[str, str]], str]] = field(default_factory=list)


def folded(tables: list[tuple[str, Table]]) -> list[tuple[str, Table]]:
    """`tables` with titles, folded where they are long or many."""
    many = len(tables) > OPEN
    return [(title, replace(table, folded=many or len(table.rows) > FOLD_FROM)) for title, table in tables]
