"""Iterative methods under real MPI libraries: the bits of one rank, whoever owns what."""

import pytest

from tests.launch import LIBRARIES
from tests.mpi.sectioned import reported, sections

PROGRAM = "krylov_methods.py"


@pytest.mark.parametrize("size", (1, 2, 3, 4, pytest.param(8, marks=pytest.mark.slow)))
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []
