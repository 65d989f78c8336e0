"""Reductions that are left before their end, under real MPI libraries."""

import pytest

from tests.mpi.sectioned import layouts, reported, sections

PROGRAM = "abandoned.py"


@layouts(2, slow=(3,), others=(3,))
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []
