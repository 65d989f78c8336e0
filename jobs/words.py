"""Shortens and escapes values and texts of unknown size and content for messages."""

from __future__ import annotations

from miniapps.untrusted.text import printable

VALUE_MOST = 80  # characters of a value in a message
TEXT_MOST = 2000  # characters of a reason; an application's error may list all known names


def quoted(value: object) -> str:
    """`repr(value)` on one line, shortened to VALUE_MOST characters."""
    return cut(repr(value), VALUE_MOST)


def cut(text: str, most: int = TEXT_MOST) -> str:
    """`text` on one line and printable, without its middle if it is longer than `most` characters."""
    if len(text) > most:
        text = f"{text[: most - most // 3]} ... {text[-(most // 3) :]}"
    return printable(text)
