"""Values and texts of unknown size and content, made fit for a message."""

from __future__ import annotations

from miniapps.untrusted.text import printable

VALUE_MOST = 80  # characters of a value in a message
TEXT_MOST = 2000  # characters of a reason: an error of an application names all that it knows


def quoted(value: object) -> str:
    """`value` as Python writes it, on one line."""
    return cut(repr(value), VALUE_MOST)


def cut(text: str, most: int = TEXT_MOST) -> str:
    """`text` on one line and printable, without its middle where it is longer than `most` characters."""
    if len(text) > most:
        text = f"{text[: most - most // 3]} ... {text[-(most // 3) :]}"
    return printable(text)
