"""The tables of studies in docs/reference/json.md: `python -m analysis.studies.documentation FILE` writes them."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from pathlib import Path

from analysis import studies
from analysis.studies.contract import Column

TYPES = {"str": "text", "bool": "boolean", "int64": "integer", "Int64": "integer?", "float64": "number",
         "object": "list of objects"}  # fmt: skip


def tables(name: str) -> str:
    """What a study has for programs, in Markdown: a table of columns for each of its tables."""
    return "\n".join(
        f"`{data.name}`: {data.meaning}.\n\n| column | type | is |\n|---|---|---|\n" + _columns(data.columns)
        for data in studies.study(name).data
    )


def _columns(columns: Mapping[str, Column]) -> str:
    """A line for each column, and one for neighbours that need no words."""
    lines = ""
    for (kind, meaning), same in itertools.groupby(columns, lambda name: _said(columns[name])):
        names = [f"`{name}`" for name in same]
        for group in [", ".join(names)] if not meaning else names:
            lines += f"| {group} | {kind} | {meaning} |\n".replace("|  |", "| |")
    return lines


def _said(column: Column) -> tuple[str, str]:
    return ", ".join(filter(None, [TYPES.get(column.dtype, column.dtype), column.unit])), column.meaning


def written(page: str) -> str:
    """`page` with the tables of each study between `<!-- NAME -->` and `<!-- /NAME -->`."""
    for name in studies.names():
        before, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->\n")
        if not (begin and end):
            raise ValueError(
                f"the page has no place for {name}: put <!-- {name} --> and <!-- /{name} --> there"
            )
        page = before + begin + tables(name) + end + after
    return page


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(written(file.read_text()))
