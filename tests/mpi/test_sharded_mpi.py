"""FSDP2 with the reduce-scatter of the suite under a real MPI library."""

import pytest

from tests.mpi.sectioned import layouts, reported, sections

PROGRAM = "sharded.py"


@layouts(2, 3, slow=(1, 4), others=())
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []
