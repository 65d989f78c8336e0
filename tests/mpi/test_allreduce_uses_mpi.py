"""All-reduces in all their uses, under real MPI libraries."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

from tests.launch import LIBRARIES, run_mpi

PROGRAM = Path(__file__).parent / "programs" / "allreduce_uses.py"
SECTIONS = re.findall(r"^            (\w+),$", PROGRAM.read_text(), re.MULTILINE)


@cache
def launched(library, size):
    """The program's report for one library and number of ranks, launched once for all tests."""
    run = run_mpi(size, [str(PROGRAM)], library=library, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("size", (1, 2, 3, 4, 8))
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("section", SECTIONS)
def test_section(section, library, size):
    assert launched(library, size)[section] == []


def test_every_section_is_tested():
    assert len(SECTIONS) == len(re.findall(r"^def \w+\(\):", PROGRAM.read_text(), re.MULTILINE))
