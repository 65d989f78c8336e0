"""Sums over ranks in floating-point environments drawn for each rank, under real MPI libraries."""

import pytest

from tests.mpi.sectioned import layouts, reported, sections

PROGRAM = "environments.py"


@layouts(3, slow=(1, 2), others=(2,))
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []
