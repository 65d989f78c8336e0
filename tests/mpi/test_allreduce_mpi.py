"""All-reduce under real MPI libraries: what the simulator says is what the network does, bit for bit."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

from tests.launch import LIBRARIES, run_mpi

PROGRAM = Path(__file__).parent / "programs" / "allreduce_properties.py"
SIZES = (1, 2, 3, 4, 8)
SECTIONS = re.findall(r"^@section\ndef (\w+)", PROGRAM.read_text(), re.MULTILINE)


@cache
def launched(library, size):
    """The program's report for one library and number of ranks, launched once for all tests."""
    run = run_mpi(size, [str(PROGRAM)], library=library, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout), run.stderr


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("section", SECTIONS)
def test_section(section, library, size):
    report, _ = launched(library, size)
    assert report[section] == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_reducers_left_unfreed_end_without_complaints(library, size):
    _, stderr = launched(library, size)
    assert "request" not in stderr.lower() and "Traceback" not in stderr
