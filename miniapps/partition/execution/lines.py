"""Writes a function of straight-line Python, one assignment per line; deletes variables after their last use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Line:
    """The line `target = text`; `uses`: the variables that it reads."""

    target: str
    text: str
    uses: tuple[str, ...]


class Lines:
    """The lines so far. `names`: {name: object} of the constants that they read."""

    def __init__(self, names: Mapping[str, Any]):
        self.names = dict(names)
        self.lines: list[Line] = []
        self._known: dict[int, str] = {}  # names by the identity of an object
        self._count = 0

    def variable(self) -> str:
        """A new variable."""
        self._count += 1
        return f"v{self._count}"

    def constant(self, value: Any, stem: str = "c") -> str:
        """A name for an object."""
        if id(value) not in self._known:
            name = f"{stem}{len(self.names)}"
            self.names[name] = value
            self._known[id(value)] = name
        return self._known[id(value)]

    def put(self, text: str, uses: Sequence[str]) -> str:
        """Append a line that assigns `text`; returns its variable."""
        target = self.variable()
        self.lines.append(Line(target, text, tuple(uses)))
        return target

    def text(self, given: Sequence[str], outputs: Sequence[str]) -> str:
        """The source of `step(given, number)`: `given` holds a value for each of these variables; returns `outputs`."""
        kept = set(outputs) | set(self.names)
        last: dict[str, int] = {}
        for at, line in enumerate(self.lines):
            last.update(dict.fromkeys((line.target, *line.uses), at))
        written = ["def step(given, number):", f"    {', '.join(given)}, = given" if given else "    pass"]
        for at, line in enumerate(self.lines):
            written.append(f"    {line.target} = {line.text}")
            gone = [
                name
                for name in dict.fromkeys((line.target, *line.uses))
                if last[name] == at and name not in kept
            ]
            if gone:
                written.append(f"    del {', '.join(gone)}")
        written.append(f"    return ({''.join(name + ', ' for name in outputs)})")
        return "\n".join(written) + "\n"

    def compiled(self, text: str, where: str) -> Callable:
        """The function of `text`; errors name `where`."""
        scope = dict(self.names)
        exec(compile(text, where, "exec"), scope)
        return scope["step"]
