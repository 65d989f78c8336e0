"""Matrices over ranks under real MPI libraries: the bits of one rank, whoever owns what."""

import os
import shutil

import pytest

from tests.launch import ROOT
from tests.mpi.sectioned import layouts, reported, sections

PROGRAM = "matrix_properties.py"
STAND_IN = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "cuda_on_host")])


@layouts(1, 3, slow=(2, 8), others=(), slow_others=(3,))
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size)[section] == []


@pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None, reason="no C++ compiler to build the kernels with"
)
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section_on_a_device(section):
    """Through the stand-in of tests/cuda_on_host, whose arrays refuse to mix with NumPy's."""
    env = (("FPNA_TEST_BACKEND", "cupy"), ("PYTHONPATH", STAND_IN))
    assert reported(PROGRAM, "mpich", 3, env)[section] == []
