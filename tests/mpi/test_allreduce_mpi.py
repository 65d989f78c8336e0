"""All-reduce under real MPI libraries: what the simulator says is what the network does, bit for bit."""

import pytest

from tests.launch import LIBRARIES
from tests.mpi.sectioned import launched, sections

PROGRAM = "allreduce_properties.py"
SIZES = (1, 2, 3, 4, 8)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert launched(PROGRAM, library, size)[0][section] == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_reducers_left_unfreed_end_without_complaints(library, size):
    _, stderr = launched(PROGRAM, library, size)
    assert "request" not in stderr.lower() and "Traceback" not in stderr
