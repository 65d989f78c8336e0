"""Checks FILE.py:FUNCTION, the name of a user's function, without running the file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from kernels.guarantees import ChoiceError


def split_function(name: str) -> tuple[str, str]:
    """(path, function) of FILE.py:FUNCTION. Raises ChoiceError for a name of another form."""
    path, colon, function = name.rpartition(":")
    if not colon or not path.endswith(".py") or not function.isidentifier():
        raise ChoiceError(f"{name!r}: write FILE.py:FUNCTION, as in mine.py:function")
    return path, function


def require(name: str) -> None:
    """Raises ChoiceError unless the file of FILE.py:FUNCTION exists, is Python, and defines FUNCTION and `inputs`."""
    path, function = split_function(name)
    if not Path(path).is_file():
        raise ChoiceError(f"{name!r}: there is no file {path}")
    try:
        bound = set(_bound(ast.parse(Path(path).read_bytes())))
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        where = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise ChoiceError(
            f"{path}{where}: {error.__class__.__name__}: {getattr(error, 'msg', error)}"
        ) from error
    for needed in (function, "inputs"):
        if needed not in bound and "*" not in bound:
            raise ChoiceError(lacks(path, needed, function))


def lacks(path: str, needed: str, function: str) -> str:
    """The message for a file without a function `needed`."""
    return (
        f"{path} has no function {needed!r}: it needs {function!r}, and inputs(seed), which returns the tuple of "
        f"the arguments of {function!r}"
    )


def _bound(tree: ast.AST) -> Iterator[str]:
    """Names that definitions, assignments and imports bind anywhere in the file; `*` for an import of all names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
