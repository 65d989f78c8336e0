"""`python -m analysis lint`."""

from __future__ import annotations

import argparse

from analysis.commands.answer import Answer, Bold, Part
from analysis.commands.choice import add_csv, frames_for_csv, none_usable
from kernels.as_json import Document, rows

SUMMARY = "what the runs do not support: rules of careful benchmarking, checked"
DETAIL = """\
Rules after Hoefler and Belli, SC'15. Findings are advice: the exit code is 0 however many there are."""
EXAMPLES = """\
  python -m analysis lint runs/"""

DOCUMENTS = {
    "lint": Document(
        rows=(
            rows(
                "findings",
                "the gravest first",
                """
            rule severity section where found remedy | text | `severity`: `error`, `warning` or `note`; `section`:
              the id of the section of the report that is concerned, such as `groups`
            """,
            ),
        )
    ),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    add_csv(parser)


def run(options: argparse.Namespace) -> Answer:
    """Applies the rules and answers with their findings."""
    from analysis.lint.rules import RULES, lint
    from analysis.overview import Overview

    frames = frames_for_csv(options)
    if frames.runs.empty:
        raise none_usable(options)
    findings = lint(Overview(frames))
    shown: list[Part] = [
        Bold(f"{len(findings)} findings by {findings['rule'].nunique()} of {len(RULES)} rules.")
    ]
    for row in findings.itertuples(index=False):
        shown += [
            "",
            f"{row.severity}: {row.found}",
            f"  {'rule':<9}{row.rule}; concerns: {row.section}",
            f"  {'where':<9}{row.where}",
            f"  {'do':<9}{row.remedy}",
        ]
    return Answer(frames, {"findings": findings}, shown)
