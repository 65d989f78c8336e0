"""JSON documents for programs: strict JSON, and the declaration of a document's keys and tables."""

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
    """A key of an object, or a column of a table: its `dtype`, its `meaning`, and its `unit`.

    The type is a dtype of pandas, or one of the words `text`, `integer`, `number`, `boolean`, `object`, or `list of`
    one of these. A `?` after the word allows null; a `number` may always be null."""

    dtype: str
    meaning: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Rows:
    """A list of objects, or a table: `meaning` describes a row."""

    name: str
    meaning: str
    columns: Mapping[str, Column]


@dataclass(frozen=True)
class Document:
    """The document that a command prints with --json. `keys`: its keys besides the common ones. `rows`: its lists of
    objects, each named by its path, such as `tables.costs`; an analysis has all of them in `tables`. `meaning`
    describes the whole document."""

    keys: Mapping[str, Column] = field(default_factory=dict)
    rows: tuple[Rows, ...] = ()
    meaning: str = ""


def columns(text: str) -> dict[str, Column]:
    """Parses lines `NAMES | TYPE | MEANING` to columns by name. Blanks separate names; a unit may follow the type after
    a comma. The meaning is optional and may continue on lines without `|`."""
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
    """A list of objects with the columns that `text` declares; see `columns`."""
    return Rows(name, meaning, columns(text))


def document(schema: int, command: str, **content: Any) -> str:
    """The document that `command` prints. `schema` increases when a key disappears or changes its meaning."""
    return text({"schema": schema, "command": command, "version": __version__, **content})


def text(content: Any) -> str:
    """`content` as strict JSON in ASCII, without control characters that a terminal would act on."""
    return json.dumps(plain(content), indent=1, allow_nan=False).replace("\x7f", "\\u007f")


def plain(value: Any) -> Any:
    """`value` in types of JSON: NumPy's numbers and arrays become Python's, NaN and infinities null, other types text.
    Lone surrogates, which UTF-8 cannot encode, are escaped."""
    if hasattr(value, "tolist"):  # NumPy's, recognised without importing NumPy
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
