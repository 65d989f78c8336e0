"""Wrapped communicators and processes of other worlds, under real MPI libraries, whose launchers can start some."""

import pytest

from tests.launch import LIBRARIES
from tests.mpi.sectioned import reported, sections

PROGRAM = "worlds.py"
OTHERS = [pytest.param(library, marks=pytest.mark.slow) for library in LIBRARIES[1:]]


@pytest.mark.parametrize("library", [LIBRARIES[0], *OTHERS])
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library):
    assert reported(PROGRAM, library, 2)[section] == []
