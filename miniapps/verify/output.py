"""The output of `verify`: lines as they come, or one document at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kernels.as_json import Document, columns, document, rows
from miniapps.untrusted.text import printable, tell

SCHEMA = 1  # of the document; a key that goes or means something else counts it up, a new one does not

DOCUMENTS = {
    "verify": Document(
        columns("""
            exit_code | integer | that of the text
            run | text
            against | text?
            intervals | integer | of the run
            challenge | text? | which decided the draw; null where nothing was drawn
            heads | list of text | which decided the draw
            published | object? | `file`, how many heads were `compared`, `of` how many
            sentences | list of text | verdicts
            notes | list of text
        """),
        (
            rows(
                "chances",
                "how likely a wrong run is met",
                """
            wrong | integer | intervals
            chance | number | that one of them is met
            """,
            ),
            rows(
                "executed",
                "an interval that was executed again",
                """
            run | text
            repeat records | integer
            after until | integer | its steps
            agrees | boolean
            difference | text?
            seconds | number, s
            """,
            ),
            rows(
                "not_covered",
                "what no head is over, as [chain](#chain) has it; and `interval`: not executed again, "
                "`heads`: not published",
                "kind name what | text",
            ),
        ),
    ),
}


@dataclass
class VerifyOutput:
    """The lines of one verification. `json`: kept for the document; `quiet`: only verdicts are printed.
    `facts` are keys of the document."""

    json: bool
    quiet: bool
    facts: dict[str, Any] = field(default_factory=dict)
    _verdicts: list[str] = field(default_factory=list)
    _lines: list[str] = field(default_factory=list)

    def line(self, text: str) -> None:
        """Print a remark beside the verdict."""
        self._lines.append(printable(text))
        if not (self.json or self.quiet):
            tell(text)

    def verdict(self, text: str) -> None:
        """Print a verdict."""
        self._verdicts.append(printable(text))
        if not self.json:
            tell(text)

    def conclude(self, code: int) -> None:
        """Print the document, with `json`."""
        if not self.json:
            return
        empty: dict[str, Any] = {
            "published": None,
            "challenge": None,
            "heads": [],
            "chances": [],
            "executed": [],
        }
        facts = empty | self.facts
        tell(
            document(SCHEMA, "verify", exit_code=code, sentences=self._verdicts, notes=self._lines, **facts),
            keep="\n",
        )
