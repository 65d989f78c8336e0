"""Documents for programs: JSON that every reader takes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from kernels import __version__


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
