"""Reads the documentation of the installed torch on its deterministic mode into a table.

`torch.use_deterministic_algorithms.__doc__` has two lists: operations that "will act deterministically", and
operations that "will throw". An entry is a name and conditions in words:

    * :func:`torch.Tensor.put_` with ``accumulate=True`` when called on a CPU tensor
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

ACTS, THROWS = "acts", "throws"
_BEGINS = {"will act": ACTS, "will throw": THROWS}
_ENTRY = re.compile(r"^\s*\* :(?:class|func|meth):`~?(?P<name>[^`]+)`(?P<rest>.*)$")
_KEYWORD = re.compile(r"``(\w+)=([^`]+)``")
_MODE = re.compile(r"^\s*- ``(\w+)``\s*$")


@dataclass(frozen=True)
class Statement:
    """One entry. `does`: "acts" deterministically or "throws" in the mode. `devices`: of "cpu" and "cuda"; both if it
    names none. `backward`: it is about the gradient. `keywords`: {argument: values that it must have}. `text`: the
    whole entry."""

    operation: str
    does: str
    devices: tuple[str, ...]
    backward: bool
    keywords: dict[str, tuple[str, ...]]
    text: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def installed() -> list[Statement]:
    """The statements of the installed torch."""
    import torch

    return statements(torch.use_deterministic_algorithms.__doc__ or "")


def statements(text: str) -> list[Statement]:
    """All entries of the documentation `text`. Raises ValueError if it has none, so its format has changed."""
    entries: list[tuple[str, str, str, list[str]]] = []
    does = ""
    open_entry = False
    for line in text.splitlines():
        begun = next((kind for words, kind in _BEGINS.items() if words in line), None)
        if begun or "will throw" in line:
            does, open_entry = begun or THROWS, False
        elif does and (match := _ENTRY.match(line)):
            entries.append((match["name"], does, match["rest"].strip(), []))
            open_entry = True
        elif open_entry and (match := _MODE.match(line)):
            entries[-1][3].append(match[1])
        elif open_entry and line.startswith("          ") and line.strip():
            name, kind, rest, modes = entries[-1]
            entries[-1] = (name, kind, f"{rest} {line.strip()}", modes)
        elif line.strip():
            does = does if not line.strip().startswith("In addition") else ""
            open_entry = False
    if not entries:
        raise ValueError(
            "torch.use_deterministic_algorithms.__doc__ has no list of operations in a known format; audit without "
            "the documentation of this torch (audit.documentation = no)"
        )
    return [_statement(*entry) for entry in entries]


def _statement(name: str, does: str, rest: str, modes: list[str]) -> Statement:
    devices = tuple(device for device in ("cpu", "cuda") if re.search(rf"\b{device}\b", rest, re.IGNORECASE))
    keywords: dict[str, tuple[str, ...]] = {}
    for key, value in _KEYWORD.findall(rest):
        keywords[key] = (*keywords.get(key, ()), value.strip("'\""))
    if modes:
        keywords["mode"] = tuple(modes)
    for words, condition in _IN_WORDS.items():
        if words in rest:
            keywords |= condition
    backward = "differentiate" in rest or "requires grad" in rest
    return Statement(name, does, devices or ("cpu", "cuda"), backward, keywords, f"{name} {rest}".strip())


# Conditions in words, as factors of cases.
_IN_WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "indices output": {"indices": ("True",)},
    "``weights``": {"weights": ("True",)},
    "sparse-dense": {"sparse": ("True",)},
}
