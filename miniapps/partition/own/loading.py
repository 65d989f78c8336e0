"""Loads the user's module and inputs from a file or an installed package.

The file runs as any Python file does, with the rights of the user. What it prints goes to standard error.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from miniapps.errors import UsageError
from miniapps.partition.capture.users import line_of

FORM = "FILE.py:NAME or PACKAGE.MODULE:NAME, as in mine.py:Model"


def is_name(text: str) -> bool:
    """Whether a text has the form of the name of a user's object, rather than of a model of this package."""
    return ":" in text or text.endswith(".py")


def named(text: str) -> Any:
    """The object FILE.py:NAME or PACKAGE.MODULE:NAME. Raises UsageError; errors of the user's code name its line."""
    home, colon, name = text.rpartition(":")
    if not colon or not home or not name.isidentifier():
        raise UsageError(f"{text!r}: write {FORM}")
    module = _file(home, text) if home.endswith(".py") else _package(home, text)
    if not hasattr(module, name):
        there = [
            key
            for key, value in vars(module).items()
            if callable(value)
            and getattr(value, "__module__", "") == module.__name__
            and not key.startswith("_")
        ]
        others = f"; it has {', '.join(there[:12])}" if there else ""
        raise UsageError(f"{text}: {home} has no {name!r}{others}")
    return getattr(module, name)


def _file(path: str, text: str) -> Any:
    where = Path(path)
    if not where.is_file():
        raise UsageError(f"{text}: there is no file {path}")
    name = f"fpna_own_{where.stem}"
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) == str(where.resolve()):
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, where.resolve())
    assert spec is not None and spec.loader is not None  # a path that ends in .py has both
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with own_code(f"{text}: importing {path}"), beside(where.resolve().parent), seeded():
        spec.loader.exec_module(module)
    return module


def _package(name: str, text: str) -> Any:
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{text!r}: write {FORM}")
    with own_code(f"{text}: importing {name}"), beside(Path.cwd()), seeded():
        return importlib.import_module(name)


@contextmanager
def beside(folder: Path) -> Iterator[None]:
    """A context in which modules in `folder` can be imported, as a script beside them can."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


@contextmanager
def seeded() -> Iterator[None]:
    """A context in which torch draws the same random numbers each time."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def made(text: str) -> Any:
    """The torch.nn.Module that a user's name stands for: an instance, or the result of a class or function without
    arguments. Raises UsageError."""
    import torch

    found = named(text)
    if isinstance(found, torch.nn.Module):
        return found
    if not callable(found):
        raise UsageError(
            f"{text} is {_kind(found)}: name a torch.nn.Module, its class, or a function that returns one"
        )
    if lacking := required(found):
        name = text.rpartition(":")[2]
        raise UsageError(
            f"{text} needs arguments ({lacking}): name a function without arguments that returns the module, "
            f"def make(): return {name}(...)"
        )
    with own_code(f"{text}: calling it"), seeded():
        module = found()
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"{text} returns {_kind(module)}: it must return a torch.nn.Module")
    return module


def called(text: str) -> Any:
    """The result of a user's function without arguments, or the object if it cannot be called. Raises UsageError."""
    found = named(text)
    if not callable(found):
        return found
    if lacking := required(found):
        raise UsageError(f"{text} needs arguments ({lacking}): name a function without arguments")
    with own_code(f"{text}: calling it"), seeded():
        return found()


def required(function: Any) -> str:
    """The parameters without defaults of a function or class, as text."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C, or no signature
        return ""
    needed = [
        p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    return ", ".join(needed)


@contextmanager
def own_code(what: str) -> Iterator[None]:
    """A context for the user's code: its prints go to standard error, its errors become a UsageError that names its
    line."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except UsageError:
        raise
    except SystemExit as end:
        raise UsageError(f"{what} calls exit({end.code!r}){line_of(end)}; leave the call out") from end
    except Exception as error:
        message = str(error).strip() or "no message"
        raise UsageError(f"{what} raises {type(error).__name__}{line_of(error)}: {message}") from error


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
