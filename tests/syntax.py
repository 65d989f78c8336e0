"""Syntax trees of the code, for tests that read all of it: each file is parsed once per process."""

import ast
import gc
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def parsed(path):
    """The module in a file. Collecting garbage between its nodes, none of which is any, takes as long as parsing."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text())
    finally:
        if collects:
            gc.enable()


@cache
def modules(top):
    """(path, syntax tree) of every Python file below this directory of the checkout."""
    return [(path, parsed(path)) for path in sorted((ROOT / top).rglob("*.py"))]
