"""All-reduces in all their uses, under real MPI libraries."""

import pytest

from tests.mpi.sectioned import layouts, reported, sections

PROGRAM = "allreduce_uses.py"


@layouts(1, 3, slow=(2, 4), others=(2,))  # how it is called; bits on more ranks are tests of their own
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []
