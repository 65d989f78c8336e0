"""Matrices from files under real MPI libraries: the same rows and the same errors on any number of ranks."""

import pytest

from tests.mpi.sectioned import layouts, reported, sections

PROGRAM = "matrix_files.py"


@layouts(1, 3, slow=(2, 8), others=(), slow_others=(3,))
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []
