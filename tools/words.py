"""`python -m tools.words`: places of pages that a reader has to decode, with what to write instead.

A rule stands here once no page breaks it, so that none comes back. Code blocks, inline code and outputs do not count.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RULES = {
    r"\b(comes?|came) to\b(?! (an|the) end)": "name the result: is, gives, costs",
    r"\btold apart\b": "distinguished",
    r"\bdealt?\b(?! with)": "assigned, redistributed",
    r"\b(that|those) (of )?which\b": "the noun",
    r"\bwhoever\b": "who does it: the reader, the library, a rank",
    r"\b(is|are|was|were) (said|told)\b": "who says it: the command prints, the trace records",
    r"\bas good as\b": "the comparison in numbers",
    r"\bnone of ours\b": "whose it is",
    r"\bwhat (is|was|are|were) \w+ed\b": "the noun: the output, the recorded rows",
    r"\bhad better\b": "should",
    r"\b(lies|lay|lie) off\b": "differs from",
    r"\bone's own\b": "your own",
}


def pages() -> dict[str, str]:
    """{path below the root: text} of the pages written by hand."""
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return {
        str(file.relative_to(ROOT)): file.read_text(encoding="utf-8")
        for file in files
        if file.name != "CHANGELOG.md"
    }


def prose(text: str) -> list[tuple[int, str]]:
    """(line number, line) of a page without its headings and its code: blocks, indented lines, inline code."""
    found, inside = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside and not line.startswith(("    ", "#")):
            found.append((number, re.sub(r"`[^`]*`", "`", line)))
    return found


def findings(texts: dict[str, str]) -> list[str]:
    """`page:line: words; write: ...` for each place that breaks a rule."""
    return [
        f"{page}:{number}: {match[0]!r}; write: {instead}"
        for page, text in texts.items()
        for number, line in prose(text)
        for rule, instead in RULES.items()
        for match in re.finditer(rule, line, re.IGNORECASE)
    ]


if __name__ == "__main__":
    found = findings(pages())
    print("\n".join(found))
    sys.exit(bool(found))
