"""Lines and tables on a terminal, or as plain text elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from analysis.page.sections import Mark, Table, filled
from analysis.verdict import BROKEN, DIFFERS, FAILED, HOLDS, INCOMPARABLE, OUTSIDE
from miniapps.untrusted.text import encodable, printable

COLOURS = {FAILED: "bold red", HOLDS: "green", BROKEN: "bold red", INCOMPARABLE: "yellow", OUTSIDE: "yellow",
           DIFFERS: "yellow"}  # fmt: skip
PLAIN_WIDTH = 160  # where the output is no terminal: wide enough that no cell is broken


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
            shown = printable(what) if isinstance(what, str) else _drawn(*what)
            console.print(shown, style="bold" if bold else None, soft_wrap=isinstance(what, str))
        lines = captured.get().removesuffix("\n").split("\n")
        if console is paper:
            lines = [line.rstrip() for line in lines]
        print(encodable("\n".join(lines), sys.stdout))

    return say


def _drawn(title: str, table: Table):
    """`table` for rich, all its text `printable`; of a mark the text, in the colour of its verdict. A heading of rows
    stands in the first of them."""
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    table = filled(table)
    grid = Grid(title=printable(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in (*filter(None, [table.by]), *table.shown):
        right = column in table.numbers
        grid.add_column(printable(column), justify="right" if right else "left", overflow="fold")
    for heading, rows in table.parts:
        for i, row in enumerate(rows):
            cells = ((heading if i == 0 else ""), *row) if table.by else row
            marks = (cell if isinstance(cell, Mark) else Mark(str(cell), "") for cell in cells)
            grid.add_row(*(Text(printable(mark.text), style=COLOURS.get(mark.verdict, "")) for mark in marks))
    return grid
