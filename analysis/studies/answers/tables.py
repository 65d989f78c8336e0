"""Sentences and tables on answers, for the terminal and for the report."""

from __future__ import annotations

from analysis.headline import Finding
from analysis.page.sections import Shown, Table, table_of
from analysis.page.text import number
from analysis.studies.answers.runs import Answers
from analysis.verdict import DIFFERS, SAME, counted


def sentences(known: Answers) -> list[str]:
    """A sentence on the cases that gave an image several results."""
    by_case = known.runs.groupby("case", sort=False)["several"].max()
    varying = [known.words.get(case, case) for case, several in by_case.items() if several]
    text = f"{counted(len(by_case), 'way')} to answer: {len(varying)} gave an image several results"
    return [text + (f": {'; '.join(varying)}." if varying else ".")]


def findings(known: Answers) -> list[Finding]:
    """The finding for the verdict over all runs: whether an image gets the same result with other requests."""
    worst = known.runs.loc[known.runs["several"].idxmax()]
    if worst["several"]:
        text = f"{worst['several']} of {counted(worst['images'], 'image')} got several results, which follow the batch"
        return [Finding(DIFFERS, text, text)]
    requests = counted(int(known.runs["requests"].sum()), "request")
    text = f"every image got one result in {requests} of changing size"
    return [Finding(SAME, text[0].upper() + text[1:], text)]


# Columns from a case and the rows of its runs.
COLUMNS = (
    Shown("case", lambda case, own: case),
    Shown("runs", lambda case, own: len(own), number=True),
    Shown("requests", lambda case, own: int(own["requests"].sum()), number=True),
    Shown("images", lambda case, own: int(own["images"].max()), number=True),
    Shown("with several results", lambda case, own: int(own["several"].max()), number=True),
    Shown("most results", lambda case, own: int(own["most"].max()), number=True),
    Shown("median, s", lambda case, own: number(own["seconds"].median()), number=True),
    Shown("99 %, s", lambda case, own: number(own["slowest"].median()), number=True),
)


def answer_tables(known: Answers) -> list[tuple[str, Table]]:
    """(title, table) per problem: bits and times of every case."""
    return [
        (f"Answers: {family}" if family else "Answers", table_of(same.groupby("case", sort=False), COLUMNS))
        for family, same in known.runs.groupby("family", sort=False)
    ]
