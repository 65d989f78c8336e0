"""What the report is made of, and the terminal too: headings, tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from analysis.page.svg import Figure
from analysis.verdict import BROKEN, DIFFERS, FAILED, HOLDS, INCOMPARABLE, OUTSIDE, SAME, UNTESTED

FOLD_FROM = 16  # rows of a table, above which it is folded
OPEN = 3  # tables of a section, above which all are folded
HIGH = 1.5  # a figure that is so many times as high as the lowest of its section comes last
ON = " on "  # in the names of columns that have one quantity on several rank counts
SIGNS = {
    FAILED: "✗",
    HOLDS: "✓",
    SAME: "=",
    DIFFERS: "≠",
    BROKEN: "✗",
    INCOMPARABLE: "?",
    OUTSIDE: "∥",
    UNTESTED: "–",
}


@dataclass(frozen=True)
class Mark:
    """A cell of a table with the colour and the sign of a `verdict` (one of verdict.MEANING, or empty); `note` is
    shown on demand. With a `series` it is the name of what has this colour in all figures."""

    text: str
    verdict: str
    note: str = ""
    series: int = -1

    @property
    def sign(self) -> str:
        """So that the verdict is seen without colours."""
        return SIGNS.get(self.verdict, "")

    def __str__(self) -> str:
        return f"{self.sign} {self.text}".strip()


@dataclass(frozen=True)
class Table:
    """Rows under `columns`; those in `numbers` are set to the right. A titled table beside figures can be
    folded, and is at first where it is `folded`. A `grid` keeps its columns however narrow the page is. Rows that have
    the same cell in the column `by` stand below it as their heading, in place of that column."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[object, ...]]
    numbers: tuple[str, ...] = ()
    folded: bool = False
    grid: bool = False
    by: str = ""

    @property
    def shown(self) -> tuple[str, ...]:
        """The columns below whose headings the rows of `parts` stand."""
        return tuple(column for column in self.columns if not self.by or column != self.by)

    @property
    def headings(self) -> list[str]:
        """`shown` as it is read from left to right: of columns such as `share on 2`, `share on 4` one after the other,
        the first has the whole name, the others `on 4`."""
        starts = [column.rpartition(ON)[0] for column in self.shown]
        return [
            column.removeprefix(start).strip() if start and start == before else column
            for column, start, before in zip(self.shown, starts, ["", *starts], strict=False)
        ]

    @property
    def parts(self) -> list[tuple[object, list[tuple[object, ...]]]]:
        """(cell of the column `by`, its rows without it), in the order of their first rows; all rows below "" without
        `by`."""
        if not self.by:
            return [("", list(self.rows))]
        at, parts = self.columns.index(self.by), dict[str, tuple[object, list[tuple[object, ...]]]]()
        for row in self.rows:
            parts.setdefault(str(row[at]), (row[at], []))[1].append((*row[:at], *row[at + 1 :]))
        return list(parts.values())


@dataclass(frozen=True)
class Shown:
    """A column of a table for people: `of(*row)` is what stands in it; a `number` is set to the right."""

    heading: str
    of: Callable[..., object]
    number: bool = False


def table_of(rows: Iterable[tuple[Any, ...]], columns: Sequence[Shown], **look: Any) -> Table:
    """A line for each of `rows`; `look` as in `Table`."""
    headings = tuple(column.heading for column in columns)
    lines = [tuple(column.of(*row) for column in columns) for row in rows]
    return Table(headings, lines, tuple(column.heading for column in columns if column.number), **look)


def lines_of(frame: pd.DataFrame, columns: Sequence[Shown], **look: Any) -> Table:
    """A line for each row of `frame`, which `of` of each column is given as a named tuple."""
    return table_of(((row,) for row in frame.itertuples(index=False)), columns, **look)


@dataclass(frozen=True)
class Section:
    """One heading of the report; `id` is its own on the page, for links and for rules. Without figures, tables and
    items it says `nothing`, which is a sentence. `items` are (heading, [(what, text)], command); `notes` are paragraphs
    below the tables; `lists` are (summary, texts), folded. `summary` stands beside the heading. Only an `opened`
    section is unfolded at first; `findings` counts what limits this section, in words."""

    id: str
    title: str
    nothing: str
    intro: str = ""
    figures: list[Figure] = field(default_factory=list)
    tables: list[tuple[str, Table]] = field(default_factory=list)
    items: list[tuple[str, list[tuple[str, str]], str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lists: list[tuple[str, list[str]]] = field(default_factory=list)
    opened: bool = False
    summary: str = ""
    findings: str = ""

    @property
    def drawn(self) -> list[Figure]:
        """The figures, those much higher than the lowest last, so that the others fill a page that is printed."""
        least = min((figure.height_in for figure in self.figures), default=0.0)
        return sorted(self.figures, key=lambda figure: figure.height_in > HIGH * least)

    @property
    def legend(self) -> tuple[tuple[int, str], ...]:
        """The legend of all figures, to be shown once; empty where there is one figure, or two give one colour to two
        things."""
        every = sorted({entry for figure in self.figures for entry in figure.legend})
        alike = len({index for index, _ in every}) == len({name for _, name in every}) == len(every)
        return tuple(every) if alike and len(self.figures) > 1 and all(f.legend for f in self.figures) else ()


def filled(table: Table) -> Table:
    """`table` without the columns in which no row has anything; the first column stays, and all do where there are no
    rows."""
    kept = [
        i for i in range(len(table.columns)) if i == 0 or not table.rows or any(str(row[i]) for row in table.rows)
    ]  # fmt: skip
    if len(kept) == len(table.columns):
        return table
    return replace(
        table, columns=tuple(table.columns[i] for i in kept), rows=[tuple(row[i] for i in kept) for row in table.rows]
    )  # fmt: skip


def said_once(table: Table, but: str = "") -> tuple[Table, str]:
    """`table` without the columns, other than the first and `but`, in which all of several rows have one text, and
    these as words for its title: `; in all rows: ranks 4, runs 12`. Empty where there is none."""
    first = 1 if table.by and table.columns[0] == table.by else 0
    same = [
        i
        for i, column in enumerate(table.columns)
        if i != first and column not in (table.by, but) and len({str(row[i]) for row in table.rows}) == 1
    ]
    texts = [f"{table.columns[i]} {text}" for i in same if (text := str(table.rows[0][i]))]
    if len(table.rows) < 2 or not texts:
        return table, ""
    kept = [i for i in range(len(table.columns)) if i not in same]
    columns, rows = tuple(table.columns[i] for i in kept), [tuple(row[i] for i in kept) for row in table.rows]
    return replace(table, columns=columns, rows=rows), f"; in all rows: {', '.join(texts)}"


def verdicts(sections: Iterable[Section]) -> set[str]:
    """The verdicts of all cells that have one."""
    tables = (table for section in sections for _, table in section.tables)
    return {
        cell.verdict for table in tables for row in table.rows for cell in row if isinstance(cell, Mark)
    } - {""}


def folded(tables: list[tuple[str, Table]]) -> list[tuple[str, Table]]:
    """`tables` with titles, folded where they are long or many."""
    many = len(tables) > OPEN
    return [(title, replace(table, folded=many or len(table.rows) > FOLD_FROM)) for title, table in tables]
