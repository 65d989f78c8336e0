"""`exact` and `fixed-point` under real MPI libraries: the same bits whichever way the contributions go."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

from tests.launch import LIBRARIES, run_mpi

PROGRAM = Path(__file__).parent / "programs" / "order_free_properties.py"
SIZES = (1, 2, 3, 4, 8)
SECTIONS = re.findall(r"^@section\ndef (\w+)", PROGRAM.read_text(), re.MULTILINE)


@cache
def launched(library, size):
    """The program's report for one library and number of ranks, launched once for all tests."""
    run = run_mpi(size, [str(PROGRAM)], library=library, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "request" not in run.stderr.lower() and "Traceback" not in run.stderr, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("section", SECTIONS)
def test_section(section, library, size):
    assert launched(library, size)[section] == []
