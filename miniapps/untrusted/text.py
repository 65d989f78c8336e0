"""Make text of unknown origin safe for a terminal."""

from __future__ import annotations

import sys
import unicodedata
from typing import Any, TextIO

# Control characters (Cc), invisible ones that reorder text (Cf), line and paragraph separators (Zl, Zp), halves of
# surrogate pairs, from file names that are not UTF-8 (Cs), private and unassigned characters (Co, Cn).
HIDDEN = ("Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn")


def printable(text: str, keep: str = "") -> str:
    """`text` with every character escaped (`\\x1b`) that a terminal would obey or hide, except characters in `keep`,
    such as a line feed."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character in keep or unicodedata.category(character) not in HIDDEN
        else _escaped(character)
        for character in text
    )


def whole(value: Any) -> Any:
    """The JSON `value` with halves of surrogate pairs escaped in its texts and keys, since UTF-8 has none."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {whole(key): whole(item) for key, item in value.items()}
    return [whole(item) for item in value] if isinstance(value, list) else value


def tell(text: object = "", file: TextIO | None = None, keep: str = "") -> None:
    """Print one line, `printable` except for `keep`, to `file` (stdout). Use it for all text that may contain words of
    a file, of its name or of a command line."""
    out = sys.stdout if file is None else file
    print(encodable(printable(str(text), keep), out), file=out, flush=True)


def encodable(text: str, file: TextIO) -> str:
    """`text` with every character escaped that the encoding of `file` lacks, for instance if LC_ALL is C."""
    encoding = getattr(file, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _escaped(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # `os.fsdecode` turned a byte that is not UTF-8 into this
        number -= 0xDC00
    return (
        f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65536 else f"\\U{number:08x}"
    )
