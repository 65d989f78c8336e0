"""What is known of answers in words and as tables, for the terminal and for the report."""

from __future__ import annotations

from analysis.headline import Finding
from analysis.inference.frames import Answers
from analysis.page.sections import Table
from analysis.page.text import number
from analysis.verdict import DIFFERS, SAME, counted


def sentences(known: Answers) -> list[str]:
    """Which cases gave an image several results, and which did not."""
    by_case = known.runs.groupby("case", sort=False)["several"].max()
    varying = [known.words.get(case, case) for case, several in by_case.items() if several]
    text = f"{counted(len(by_case), 'way')} to answer: in {len(varying)} of them images got several results"
    return [text + (f": {'; '.join(varying)}." if varying else ".")]


def findings(known: Answers) -> list[Finding]:
    """What the verdict over all runs says of answers: an image that comes again in other company is compared with
    itself."""
    if known.runs.empty:
        return []
    worst = known.runs.loc[known.runs["several"].idxmax()]
    if worst["several"]:
        text = f"{worst['several']} of {counted(worst['images'], 'image')} got several results, which follow the batch"
        return [Finding(DIFFERS, text, text)]
    requests = counted(int(known.runs["requests"].sum()), "request")
    text = f"every image got one result in {requests} of changing size"
    return [Finding(SAME, text[0].upper() + text[1:], text)]


def answer_tables(known: Answers) -> list[tuple[str, Table]]:
    """(title, table) per problem: bits and times of every case."""
    columns = (
        "case",
        "runs",
        "requests",
        "images",
        "with several results",
        "most results",
        "median, s",
        "99 %, s",
    )
    tables = []
    for family, same in known.runs.groupby("family", sort=False):
        rows = [
            (
                case, len(own), int(own["requests"].sum()), int(own["images"].max()), int(own["several"].max()),
                int(own["most"].max()), number(own["seconds"].median()), number(own["slowest"].median()),
            )
            for case, own in same.groupby("case", sort=False)
        ]  # fmt: skip
        title = f"Answers: {family}" if family else "Answers"
        tables.append((title, Table(columns, rows, columns[1:])))
    return tables
