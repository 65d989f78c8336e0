"""A communicator of mpi4py whose sums keep a promise, under real MPI libraries."""

import pytest

from tests.mpi.sectioned import layouts, reported, sections

PROGRAM = "wrapped.py"


@layouts(1, 3, slow=(2, 8))
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []
