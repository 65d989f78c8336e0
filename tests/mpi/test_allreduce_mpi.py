"""All-reduce under real MPI libraries: what the simulator says is what the network does, bit for bit."""

import pytest

from tests.launch import libraries, run_mpi
from tests.mpi.sectioned import PROGRAMS, layouts, reported, sections

PROGRAM = "allreduce_properties.py"


@layouts(1, 4, slow=(3, 8))
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []


@libraries
def test_reducers_left_unfreed_end_without_complaints(library):
    run = run_mpi(3, [str(PROGRAMS / "allreduce_unfreed.py")], library)
    assert run.returncode == 0 and "request" not in run.stderr.lower() and "Traceback" not in run.stderr
