"""Lines and tables on a terminal, or as plain text elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from analysis.page.sections import Mark, Table, filled
from analysis.verdict import BROKEN, DIFFERS, FAILED, HOLDS, INCOMPARABLE, OUTSIDE
from miniapps.untrusted.text import encodable, printable

if TYPE_CHECKING:  # rich takes a moment to import
    from rich.console import Group

COLOURS = {FAILED: "bold red", HOLDS: "green", BROKEN: "bold red", INCOMPARABLE: "yellow", OUTSIDE: "yellow",
           DIFFERS: "yellow"}  # fmt: skip
PLAIN_WIDTH = 160  # where the output is no terminal: wide enough that no cell is broken
GAP = 3  # columns are this far apart
PROSE, PROSE_LEAST = 40, 28  # letters from which on a text is long, and the width that it needs beside others
KEY_LEAST = 16  # width of a column that names the rows
KEYS = 3  # columns that name the rows, at most


def printer() -> Callable[..., None]:
    """A function that prints a line of text, or a pair (title, Table): in colour and as wide as the terminal, or, where
    the output is no terminal, as plain text without spaces at the ends of lines. `bold=True` is for the verdict. Only
    the printer's own colours reach the terminal as control characters."""
    from rich.console import Console

    plain: dict[str, Any] = {"highlight": False, "emoji": False, "markup": False}
    terminal = Console(**plain)
    paper = Console(**plain, width=PLAIN_WIDTH, color_system=None)

    def say(what: str | tuple[str, Table] = "", bold: bool = False) -> None:
        console = terminal if terminal.is_terminal else paper
        with console.capture() as captured:
            shown = printable(what) if isinstance(what, str) else laid_out(*what, console.width)
            console.print(shown, style="bold" if bold else None, soft_wrap=isinstance(what, str))
        lines = captured.get().removesuffix("\n").split("\n")
        if console is paper:
            lines = [line.rstrip() for line in lines]
        print(encodable("\n".join(lines), sys.stdout))

    return say


def laid_out(title: str, table: Table, width: int) -> Group:
    """`table` for rich, all its text `printable`; of a mark the text, in the colour of its verdict. A heading of rows
    stands in the first of them. No number and no word is broken: of a table that is wider than `width` a heading of
    rows stands above them, the columns that have no room are continued below, with the rows named again, and long texts
    follow, a paragraph for each row."""
    from rich.console import Group
    from rich.text import Text

    table = filled(table)
    rows = [
        ((heading if i == 0 else ""), *row) if table.by else row
        for heading, own in table.parts
        for i, row in enumerate(own)
    ]
    whole = _Grid((*filter(None, [table.by]), *table.shown), rows, table.numbers)
    drawn: list[Any] = [Text(printable(title), style="italic")] if title else []
    if whole.fits(width) or not table.by:
        return Group(*drawn, *whole.drawn(whole.rows, width))
    inner = _Grid(table.shown, [row for _, own in table.parts for row in own], table.numbers, whole)
    places = iter(inner.rows)
    for heading, own in table.parts:
        drawn += [Text(_mark(heading).text, style="bold"), *inner.drawn([next(places) for _ in own], width)]
    return Group(*drawn)


def _mark(cell: object) -> Mark:
    text = printable(cell.text if isinstance(cell, Mark) else str(cell))
    return Mark(text, cell.verdict if isinstance(cell, Mark) else "")


class _Grid:
    """The cells of a table, and how they are laid out."""

    def __init__(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: Collection[str],
        whole: _Grid | None = None,
    ) -> None:  # fmt: skip
        from rich.cells import cell_len

        self.columns, self.rows = (
            [printable(column) for column in columns],
            [list(map(_mark, row)) for row in rows],
        )
        self.right = [column in numbers for column in columns]
        self.cells, self.natural, self.least, self.long = [], [], [], []
        for i, heading in enumerate(self.columns):
            texts = [row[i].text for row in self.rows]
            words = [word for text in (heading, *texts) for word in text.split()] + texts * self.right[i]
            self.cells.append(max(map(cell_len, texts), default=0))
            self.natural.append(max(self.cells[i], cell_len(heading)))
            self.least.append(max(map(cell_len, words), default=0))
            prose = self.natural[i] > PROSE and not self.right[i]
            if prose and not any(row[i].verdict for row in self.rows):
                self.long.append(i)
                self.least[i] = max(self.least[i], PROSE_LEAST)
        self.keys = self._naming(whole)

    def _naming(self, whole: _Grid | None) -> list[int]:
        """The columns that name the rows: the fewest from the left that tell them apart, but for those of verdicts.
        Rows below different headings, the first column of `whole`, need not differ."""
        heading, headings = "", []
        for row in [] if whole is None else whole.rows:
            heading = row[0].text or heading
            headings.append(heading)
        texts = [i for i in range(len(self.columns)) if not any(row[i].verdict for row in self.rows)]
        for count in range(1, min(KEYS, len(texts)) + 1):
            names = [tuple(row[i].text for i in texts[:count]) for row in self.rows]
            if len(set(zip(headings, names, strict=True) if headings else names)) == len(names):
                return texts[:count]
        return texts[:1] or [0]

    def fits(self, width: int) -> bool:
        """Whether all columns have room beside each other."""
        return self._wide(range(len(self.columns))) <= width

    def _wide(self, part: Iterable[int]) -> int:
        return sum(self.least[i] + GAP for i in part) - 1

    def drawn(self, rows: list[list[Mark]], width: int) -> list[Any]:
        """`rows` in as many grids as they need, and paragraphs."""
        from rich.padding import Padding
        from rich.text import Text

        if self.fits(width):
            return [self._grid(rows, range(len(self.columns)), width)]
        keys = self.keys
        for i in keys:
            self.least[i] = min(self.least[i], max(width // (2 * len(keys)), KEY_LEAST))
        parts = [list(keys)]
        for i in range(len(self.columns)):
            if i in keys or i in self.long:
                continue
            if len(parts[-1]) > len(keys) and self._wide([*parts[-1], i]) > width:
                parts.append(list(keys))
            parts[-1].append(i)
        drawn: list[Any] = [self._grid(rows, sorted(part), width) for part in parts]
        for i in self.long:
            told = [
                f"{', '.join(row[k].text for k in keys)}: {row[i].text}"
                for row in rows
                if row[i].text and i not in keys
            ]
            if told:
                drawn += [
                    Text(f"{self.columns[i]}:"),
                    *(Padding(Text(text), (0, 0, 0, 2)) for text in told),
                    "",
                ]
        return drawn

    def _grid(self, rows: list[list[Mark]], part: Sequence[int], width: int) -> Any:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        wide, room = {i: self.least[i] for i in part}, max(0, width - self._wide(part))
        short = [i for i in part if self.natural[i] <= PROSE]
        # First no cell of a short column is broken, then no heading; long texts get the room that is left.
        for columns, target in ((short, self.cells), (short, self.natural), (part, self.natural)):
            for i in sorted(columns, key=lambda i: target[i] - wide[i]):
                more = min(room, max(0, target[i] - wide[i]))
                wide[i], room = wide[i] + more, room - more
        grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for i in part:
            side: Literal["left", "right"] = "right" if self.right[i] else "left"
            grid.add_column(self.columns[i], justify=side, width=wide[i], overflow="fold")
        for row in rows:
            grid.add_row(*(Text(row[i].text, style=COLOURS.get(row[i].verdict, "")) for i in part))
        return grid
