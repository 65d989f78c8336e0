"""The output of `verify`: lines at once, or one document at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kernels.as_json import Document, columns, document, rows
from miniapps.untrusted.text import printable, tell

SCHEMA = 1  # of the document; a key that is removed or changes its meaning counts it up, a new key does not

DOCUMENTS = {
    "verify": Document(
        columns("""
            exit_code | integer | as without `--json`
            run | text
            against | text?
            intervals | integer | intervals between heads of the run
            challenge | text? | the challenge of the draw; null without a draw
            heads | list of text | the heads that decided the draw
            published | object? | `file`; `compared` of the run's `of` heads
            sentences | list of text | verdicts
            notes | list of text
        """),
        (
            rows(
                "chances",
                "the probability that the draw contains a wrong interval",
                """
            wrong | integer | number of wrong intervals
            chance | number | probability that at least one of them was drawn
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
                "a part of the run that no head covers, as in [chain](#chain); also the kinds `interval`, not executed "
                "again, and `heads`, not published",
                "kind name what | text",
            ),
        ),
    ),
}


@dataclass
class VerifyOutput:
    """The lines of one verification. `json`: keep them for the document; `quiet`: print only verdicts.
    `facts`: keys of the document."""

    json: bool
    quiet: bool
    facts: dict[str, Any] = field(default_factory=dict)
    _verdicts: list[str] = field(default_factory=list)
    _lines: list[str] = field(default_factory=list)

    def line(self, text: str) -> None:
        """Print a line that is no verdict."""
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
