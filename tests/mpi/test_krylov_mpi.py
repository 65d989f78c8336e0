"""Iterative methods under real MPI libraries: the bits of one rank, whoever owns what."""

import pytest

from tests.launch import LIBRARIES
from tests.mpi.sectioned import reported, sections, sizes

PROGRAM = "krylov_methods.py"


@sizes(1, 3, 4, slow=(2, 8))
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []
