"""Reductions over wires that lose something, under real MPI libraries: the bits are the simulator's."""

import pytest

from tests.mpi.sectioned import layouts, reported, sections

PROGRAM = "coded.py"


@layouts(1, 3, slow=(2, 4, 8))
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []
