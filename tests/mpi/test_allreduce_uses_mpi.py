"""All-reduces in all their uses, under real MPI libraries."""

import pytest

from tests.launch import LIBRARIES
from tests.mpi.sectioned import reported, sections

PROGRAM = "allreduce_uses.py"


@pytest.mark.parametrize("size", (1, 2, 3, 4))  # how it is called; bits on more ranks are tests of their own
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []
