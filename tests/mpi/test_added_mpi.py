"""Contributions that are added one by one, under real MPI libraries."""

import pytest

from tests.launch import LIBRARIES
from tests.mpi.sectioned import launched, sections

PROGRAM = "added.py"


@pytest.mark.parametrize("size", (1, 2, 3, 4))
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert launched(PROGRAM, library, size)[0][section] == []
