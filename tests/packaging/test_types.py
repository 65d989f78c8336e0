"""Users' imports have types: `make lint` checks these modules strictly, and a program that uses every name."""

import re
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import fpna

ROOT = Path(__file__).resolve().parents[2]
MYPY = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]


def test_every_public_name_is_in_the_program_that_is_checked():
    assert "tests.packaging.user_program" in MYPY["modules"]
    used = set(re.findall(r"fpna\.(\w+)", (ROOT / "tests/packaging/user_program.py").read_text()))
    assert set(fpna.__all__) <= used


def test_every_module_behind_a_public_name_is_checked_strictly():
    (strict,) = (each["module"] for each in MYPY["overrides"] if each.get("disallow_untyped_defs"))
    assert all(any(fnmatchcase(home, pattern) for pattern in strict) for home in fpna.HOMES.values())
