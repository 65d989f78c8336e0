"""Tables of embeddings under real MPI."""

import pytest

from tests.mpi.sectioned import layouts, reported, sections

PROGRAM = "embeddings.py"


@pytest.mark.parametrize("name", sections(PROGRAM))
@layouts(3, slow=(1, 2, 5), others=(), slow_others=(3,))
def test_tables(name, library, size):
    assert reported(PROGRAM, library, size)[name] == []
