"""Pieces of Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; columns in which no row has anything are left out."""
    rows = [[cell(value) for value in row] for row in rows]
    kept = [i for i in range(len(header)) if any(row[i] for row in rows)]
    lines = [[header[i] for i in kept], ["---"] * len(kept), *([row[i] for i in kept] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def cell(value: object) -> str:
    """A value in a cell of a table: one line, in which no character ends the cell or is HTML."""
    text = " ".join(str(value).split())
    if "`" not in text:  # inside code these are as they are
        text = text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
    return text.replace("|", "\\|")


def code(text: object) -> str:
    """Text as code in a line; empty for an empty one."""
    return f"`{text}`" if str(text) else ""


def block(text: str, language: str = "text") -> str:
    """Lines as they are."""
    return f"```{language}\n{text.strip(chr(10))}\n```\n"


def sentence(text: str) -> str:
    """Text with a capital at its beginning and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", ":", "!", "?")) else ".")


def prose(text: str, up: str) -> str:
    """The text of a help: paragraphs as they are, indented lines and lists as a block; a page that it names is a link,
    from a page so many folders deep as `up` says (`../../`)."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        laid_out = re.search(r"^ |   |:$", paragraph, flags=re.MULTILINE)
        parts.append(block(paragraph) if laid_out else linked(paragraph, up))
    return "\n\n".join(parts)


def linked(text: str, up: str) -> str:
    """Text in which `docs/PAGE.md` is a link."""
    return re.sub(r"docs/([\w/-]+/([\w-]+)\.md)", rf"[\2]({up}\1)", text)


def docstring(thing: object) -> str:
    """The docstring of an object, without its indentation."""
    return inspect.getdoc(thing) or ""


def page(title: str, *parts: str) -> str:
    """A page of one heading and its parts, an empty line between."""
    return "\n\n".join([f"# {title}", *(part.strip("\n") for part in parts if part.strip())]) + "\n"
