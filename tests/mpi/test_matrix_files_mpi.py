"""Matrices from files under real MPI libraries: the same rows and the same errors on any number of ranks."""

import pytest

from tests.mpi.sectioned import reported, sections

PROGRAM = "matrix_files.py"


@pytest.mark.parametrize(
    ("library", "size"), [*(("mpich", size) for size in (1, 2, 3, 4, 8)), ("openmpi", 3)]
)
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []
