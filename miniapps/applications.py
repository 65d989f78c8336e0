"""The registry of applications: the packages of `miniapps` that define APP."""

from __future__ import annotations

import ast
from functools import cache
from importlib import import_module
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from miniapps.runner.main import App


@cache
def names() -> tuple[str, ...]:
    """The names of all applications in alphabetical order. Imports none of them, since login nodes may have no MPI."""
    fronts = {folder.name: folder.joinpath("__init__.py") for folder in files("miniapps").iterdir()}
    return tuple(sorted(name for name, front in fronts.items() if front.is_file() and defines(front, "APP")))


def app(name: str) -> App:
    """The application `name`, one of `names()`. Raises ImportError or RuntimeError without an MPI library."""
    found: App = import_module(f"miniapps.{name}").APP
    return found


def defines(file: Traversable, name: str) -> bool:
    """Whether the module in `file` assigns to `name` at its top level. Parses it without importing it."""
    targets = (
        target
        for statement in ast.parse(file.read_text(encoding="utf-8")).body
        for target in getattr(statement, "targets", [getattr(statement, "target", None)])
    )
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)
