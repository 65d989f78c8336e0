"""Documents for programs: JSON that every reader takes, and how a command declares what its document holds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernels import __version__

COMMON = ("schema", "command", "version")  # keys of every document


@dataclass(frozen=True)
class Column:
    """A key of an object, or a column of a table: its `dtype` in pandas or in words, its `meaning`, and its `unit`.

    In words a type is `text`, `integer`, `number`, `boolean`, `object`, or `list of` one of these; `?` behind it says
    that it may be null, which every number may be."""

    dtype: str
    meaning: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Rows:
    """A list of objects, or a table: `meaning` says what a row is."""

    name: str
    meaning: str
    columns: Mapping[str, Column]


@dataclass(frozen=True)
class Document:
    """What a command prints with --json: its `keys` beside those that all documents have, and its lists of objects by
    their place, such as `tables.costs`; those of an analysis lie in `tables` all. `meaning`: of the whole."""

    keys: Mapping[str, Column] = field(default_factory=dict)
    rows: tuple[Rows, ...] = ()
    meaning: str = ""


def columns(text: str) -> dict[str, Column]:
    """Columns by name from lines `NAMES | TYPE | MEANING`: names with blanks between, the type with perhaps a unit
    behind a comma, a meaning that may be missing or go on in lines without `|`."""
    found: dict[str, Column] = {}
    lines: list[str] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if "|" in line:
            lines.append(line)
        else:
            lines[-1] += f" {line}"
    for line in lines:
        names, kind, *meaning = map(str.strip, line.split("|"))
        dtype, _, unit = kind.partition(", ")
        found |= {name: Column(dtype, " ".join(meaning), unit) for name in names.split()}
    return found


def rows(name: str, meaning: str, text: str) -> Rows:
    """A list of objects whose columns are those of `text`."""
    return Rows(name, meaning, columns(text))


def document(schema: int, command: str, **content: Any) -> str:
    """The document that `command` prints: `schema` counts up when a key goes or means something else."""
    return text({"schema": schema, "command": command, "version": __version__, **content})


def text(content: Any) -> str:
    """`content` as strict JSON in ASCII: no character reaches a terminal that it would obey or hide."""
    return json.dumps(plain(content), indent=1, allow_nan=False).replace("\x7f", "\\u007f")


def plain(value: Any) -> Any:
    """`value` as JSON holds it: numbers and arrays of NumPy as Python's, what is not finite as null, halves of
    surrogate pairs, which UTF-8 does not have, escaped; what JSON does not know as its text."""
    if hasattr(value, "tolist"):  # of NumPy, which is not imported for this
        value = value.tolist()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value).encode("utf-8", "backslashreplace").decode()
