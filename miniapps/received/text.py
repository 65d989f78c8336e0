"""Text of unknown origin, made fit for a terminal."""

from __future__ import annotations

import unicodedata

# Control characters (Cc), invisible ones that reorder what is read (Cf), line and paragraph separators (Zl, Zp),
# halves of surrogate pairs as file names that are not UTF-8 give them (Cs), private and unassigned ones (Co, Cn).
HIDDEN = ("Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn")


def printable(text: str, keep: str = "") -> str:
    """`text` with every character that a terminal would obey or hide written as Python writes it (`\\x1b`); those in
    `keep`, such as a line feed, stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character
        if character in keep or unicodedata.category(character) not in HIDDEN
        else _escaped(character)
        for character in text
    )


def _escaped(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # a byte that is not UTF-8: `os.fsdecode` keeps it so
        number -= 0xDC00
    return (
        f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65536 else f"\\U{number:08x}"
    )
