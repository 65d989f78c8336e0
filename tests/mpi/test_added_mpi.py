"""Contributions that are added one by one, under real MPI libraries."""

import pytest

from tests.mpi.sectioned import layouts, reported, sections

PROGRAM = "added.py"


@layouts(1, 3, slow=(2, 4), others=(2,))
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []
