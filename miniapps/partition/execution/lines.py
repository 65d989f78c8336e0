"""Collects the assignments of a function, and compiles it; `loops` writes its source."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from miniapps.partition.execution.loops import Line, Text


class Lines:
    """The lines so far. `names`: {name: object} of the constants that they read."""

    def __init__(self, names: Mapping[str, Any]):
        self.names = dict(names)
        self.lines: list[Line] = []
        self.tables: dict[str, tuple[str, ...]] = {}  # names of the constants in lists that loops read
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
        """The source of `step(given, number)`: `given` holds a value for each of these variables; returns `outputs`.
        Equal lines that repeat are a loop."""
        source = Text(self.lines, self.names, given, outputs)
        self.tables = source.tables
        return source.text()

    def compiled(self, text: str, where: str) -> Callable:
        """The function of the source; errors name `where`."""
        scope = dict(self.names)
        for table, names in self.tables.items():
            scope[table] = [self.names[name] if name in self.names else literal_eval(name) for name in names]
        exec(compile(text, where, "exec"), scope)
        return scope["step"]
