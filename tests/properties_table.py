"""The tables of docs/explanation/allreduce.md, as far as tests compare with them."""

from pathlib import Path

from kernels.allreduce.instruments.properties import PROPERTIES

DOCS = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "allreduce.md"


def rows(text):
    """{ordering: {"declared": level, property: "yes" or "no"}} of a table of properties in Markdown."""
    table = {}
    for line in text.splitlines():
        cells = [cell.strip(" `") for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 2 + len(PROPERTIES):
            table[cells[0]] = dict(zip(("declared", *PROPERTIES), cells[1:], strict=True))
    return table


def documented(library):
    """The text of the table of a library, as generated into the docs."""
    return (
        DOCS.read_text().partition(f"<!-- properties:{library} -->\n")[2].partition("\n<!-- /properties")[0]
    )
