"""Preconditioners under real MPI libraries: the same bits for any number of ranks and any owners."""

import pytest

from tests.mpi.sectioned import layouts, reported, sections

PROGRAM = "preconditioners.py"


@layouts(1, 3, slow=(2, 8), others=(), slow_others=(2,))
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []
