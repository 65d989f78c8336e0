"""Options that the analysis and campaigns name are options that an application has.

An option under another name is never found in a trace: nothing fails, and runs that differ in it look alike.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from miniapps import applications
from miniapps.runner.commandline import known_options

ROOT = Path(__file__).parents[2]
OTHERS = {"grid.color", "grid.linewidth"}  # of Matplotlib


@cache
def options():
    """The options of all applications, by full name."""
    return {
        f"{o.section}.{o.name}"
        for name in applications.names()
        for o in known_options(applications.app(name))
    }


def texts(file):
    """(line, text) of every constant text of a module."""
    return [
        (node.lineno, node.value)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


@pytest.mark.parametrize(
    "folder", ["analysis", "jobs", "benchmarks", "fpna", "miniapps/trace", "miniapps/runner"]
)
def test_every_option_that_is_named_exists(folder):
    sections = {name.partition(".")[0] for name in options()}
    unknown = [
        f"{file.relative_to(ROOT)}:{line}: {text}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for line, text in texts(file)
        if re.fullmatch(r"[a-z]+\.(?!json)[a-z_0-9]+", text)
        and text.partition(".")[0] in sections
        and text not in options() | OTHERS
    ]
    assert not unknown, "\n".join(unknown)
