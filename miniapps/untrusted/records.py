"""JSON and TOML of unknown origin, checked against a schema; msgspec checks types and writes these messages."""

from __future__ import annotations

import json
import os
import re
import tomllib
from types import UnionType
from typing import Any, TypeVar, overload

import msgspec

from miniapps.untrusted.regular import Refused, read_bytes
from miniapps.untrusted.text import printable

MOST = 64 * 2**20  # bytes of one JSON file: the configuration, checks and figures of a run take some 10 kB
LINE_MOST = 2**20  # bytes of one line of a journal
TOML_MOST = 2**20  # characters of a deck, a campaign or a site
DEEPEST = 64  # nested brackets
OBJECT, VALUE = 250, 90  # most bytes of memory for a list or dict, and for a value or key in it
FREE, FACTOR = 2**27, 3  # all values may take FREE bytes, plus FACTOR times the bytes of the text
DIGITS = 400  # of one number: 2^1023 has 309; Python's own limit is 4,300

T = TypeVar("T")


def read_json(path: str | os.PathLike, schema: type[T], most: int = MOST) -> T:
    """Reads the JSON file `path` as a `schema`, a msgspec.Struct or any type that msgspec knows.

    Raises Refused if it is too large, too deep, not JSON or not of the schema; OSError if it cannot be read.
    """
    return decode(read_bytes(path, most), schema, printable(os.fspath(path)))


def decode(text: bytes, schema: type[T], where: str) -> T:
    """The JSON `text` as a `schema`; `where` begins the message of Refused."""
    _require_bounded(text, where)
    try:
        return msgspec.json.decode(text, type=schema)
    except (msgspec.MsgspecError, UnicodeError, ValueError, RecursionError) as error:
        raise Refused(
            f"{where}: is not what this program writes ({printable(str(error))}); copy it again"
        ) from None


def loads(text: bytes, where: str) -> Any:
    """The JSON `text` as plain Python types, NaN and infinities as Python writes them; raises Refused."""
    _require_bounded(text, where)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(
            f"{where}: is not JSON ({printable(str(error))}); copy it again, or leave it out"
        ) from None


@overload
def conform(value: Any, schema: type[T], where: str) -> T: ...
@overload
def conform(value: Any, schema: UnionType, where: str) -> Any: ...
def conform(value: Any, schema: Any, where: str) -> Any:
    """`value`, of plain Python types, as a `schema`. Raises Refused, its message beginning with `where`."""
    try:
        return msgspec.convert(value, type=schema)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Refused(
            f"{where}: is not what this program writes ({printable(str(error))}); copy it again"
        ) from None


def _require_bounded(text: bytes, where: str) -> None:
    """Raise Refused if JSON nests too deep, or needs far more memory than its text: a value of two bytes may take a
    hundred."""
    if depth(text) > DEEPEST:
        raise Refused(
            f"{where}: brackets more than {DEEPEST} deep; it is damaged, or not written by this suite: leave it out"
        )
    values = text.count(b",") + text.count(b":")
    if OBJECT * (text.count(b"[") + text.count(b"{")) + VALUE * values > FREE + FACTOR * len(text):
        raise Refused(
            f"{where}: {values:,} values in {len(text):,} bytes; it was not written by this suite: leave it out"
        )


def depth(text: bytes) -> int:
    """The greatest depth of nested brackets in JSON or TOML `text`; brackets in strings count, too."""
    deepest = here = 0
    for bracket in re.finditer(rb"[\[\]{}]", text):
        here = max(0, here + (1 if bracket[0] in b"[{" else -1))
        deepest = max(deepest, here)
    return deepest


def parse_toml(text: str) -> dict[str, Any]:
    """TOML `text` of at most TOML_MOST characters as a dict.

    Raises tomllib.TOMLDecodeError if it is not TOML; ValueError if it is too large, too deep or has a number of more
    than DIGITS digits. The parser is recursive, and Python's own limits would raise another error.
    """
    if len(text) > TOML_MOST:
        raise ValueError(f"{len(text):,} characters, and at most {TOML_MOST:,} are read")
    if depth(text.encode(errors="surrogatepass")) > DEEPEST:
        raise ValueError(f"brackets more than {DEEPEST} deep")
    for number, line in enumerate(text.splitlines(), start=1):
        if re.search(rf"[0-9_]{{{DIGITS}}}|0x[0-9A-Fa-f_]{{{DIGITS}}}", line):
            raise ValueError(f"a number of more than {DIGITS} digits in line {number}")
        if line.split("=")[0].count(".") > DEEPEST:
            raise ValueError(f"a key of more than {DEEPEST} parts in line {number}")
    return tomllib.loads(text)
