"""Iterative methods under real MPI libraries: the bits of one rank, whoever owns what."""

import pytest

from tests.mpi.sectioned import layouts, reported, sections

PROGRAM = "krylov_methods.py"


@layouts(1, 3, slow=(2, 8), others=(), slow_others=(2,))
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []
