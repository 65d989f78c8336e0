"""`python -m tools.words [FILE ...]`: places that a reader has to decode, with what to write instead.

It reads pages, and of code in Python, C++ and CUDA the docstrings, comments and texts. A rule stands here once no page
breaks it, so that none comes back; `READ` lists the rooms of code that are held to the rules.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
READ = (
    "tools",
    "fpna",
    "jobs",
    "analysis",
    "miniapps/runner",
    "miniapps/trace",
    "miniapps/partition",
    "miniapps/checkpoints",
    "miniapps/solver",
    "miniapps/linear",
    "miniapps/coupled",
    "miniapps/learning",
    "miniapps/training",
    "miniapps/reductions",
    "miniapps/operations",
    "miniapps/inference",
    "miniapps/dlrm",
    "miniapps/embeddings",
    "miniapps/layout",
    "miniapps/mesh",
    "miniapps/calibrate",
    ":(glob)miniapps/*.py",
    "kernels",
    "miniapps/untrusted",
    "miniapps/verify",
    "miniapps/cause",
    "miniapps/cost",
    "miniapps/cpus",
    "miniapps/tryout",
    "miniapps/system",
    "benchmarks",
    "miniapps/programs",
)
CODE = (".py", ".cpp", ".hpp", ".h", ".cu", ".cuh")
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
    return texts(file for file in files if file.name != "CHANGELOG.md")


def code(rooms: Iterable[str] = READ) -> dict[str, str]:
    """{path below the root: text} of the code in `rooms` that git tracks."""
    tracked = subprocess.run(
        ["git", "ls-files", *rooms], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return texts(ROOT / name for name in tracked.stdout.splitlines() if name.endswith(CODE))


def texts(files: Iterable[Path]) -> dict[str, str]:
    return {str(file.resolve().relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}


def prose(name: str, text: str) -> list[tuple[int, str]]:
    """(line number, line) of the words that a person reads in the file `name`, without inline code in backquotes."""
    lines = python(text) if name.endswith(".py") else native(text) if name.endswith(CODE) else page(text)
    return [(number, re.sub(r"`[^`]*`", "`", line)) for number, line in lines]


def page(text: str) -> list[tuple[int, str]]:
    """A page of Markdown without its headings, its code (blocks and indented lines) and its comments."""
    found, inside = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif line.lstrip().startswith(("<!--", "-->")):
            inside = "-->" not in line
        elif not inside and not line.startswith(("    ", "#")):
            found.append((number, line))
    return found


def python(text: str) -> list[tuple[int, str]]:
    """Comments, docstrings and texts of a module in Python; texts without a space are names."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string):
            found += list(enumerate(token.string.splitlines(), token.start[0]))
    return found


def native(text: str) -> list[tuple[int, str]]:
    """Comments and texts of C++ and CUDA; texts without a space are names."""
    words = r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\""
    return [
        (text.count("\n", 0, match.start()) + 1 + after, line)
        for match in re.finditer(words, text, re.DOTALL)
        if match[0][0] == "/" or " " in match[0]
        for after, line in enumerate(match[0].splitlines())
    ]


def findings(texts: dict[str, str]) -> list[str]:
    """`file:line: words; write: ...` for each place that breaks a rule."""
    return [
        f"{name}:{number}: {match[0]!r}; write: {instead}"
        for name, text in texts.items()
        for number, line in prose(name, text)
        for rule, instead in RULES.items()
        for match in re.finditer(rule, line, re.IGNORECASE)
    ]


if __name__ == "__main__":
    found = findings(texts(map(Path, sys.argv[1:])) if sys.argv[1:] else {**pages(), **code()})
    print(*found, sep="\n" if found else "", end="\n" if found else "")
    sys.exit(bool(found))
