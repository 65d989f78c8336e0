"""The applications: the packages of `miniapps` that define APP. Whoever lists, starts or plans one asks here."""

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
    """The names of all applications in alphabetical order. None is imported: login nodes may have no MPI."""
    fronts = {folder.name: folder.joinpath("__init__.py") for folder in files("miniapps").iterdir()}
    return tuple(sorted(name for name, front in fronts.items() if front.is_file() and defines(front, "APP")))


def app(name: str) -> App:
    """The application of that name, one of `names()`. ImportError or RuntimeError without an MPI library."""
    found: App = import_module(f"miniapps.{name}").APP
    return found


def defines(file: Traversable, name: str) -> bool:
    """Whether a module of ours assigns to that name at its top; it is not imported."""
    targets = (
        target
        for statement in ast.parse(file.read_text(encoding="utf-8")).body
        for target in getattr(statement, "targets", [getattr(statement, "target", None)])
    )
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)
