"""What the report is made of, and the terminal too: headings, tables and figures."""

from __future__ import annotations

from dataclasses import dataclass, field

from analysis.svg import Figure


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
