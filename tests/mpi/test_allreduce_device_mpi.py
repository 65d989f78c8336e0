"""All-reduces of arrays in GPU memory under real MPI libraries, by the stand-in for CuPy of tests/cuda_on_host."""

import os

import pytest

from tests.launch import ROOT, run_mpi
from tests.mpi.sectioned import layouts, reported, sections

PROGRAM = "allreduce_device.py"
STAND_IN = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "cuda_on_host")])}


@layouts(3, 1, others=(1,))  # at first all ranks, so that none of them has imported CuPy yet
@pytest.mark.parametrize("section", sections(PROGRAM))
def test_section(section, library, size):
    assert reported(PROGRAM, library, size, tuple(STAND_IN.items()))[section] == []


def test_without_cupy_the_message_says_what_to_install():
    code = (
        "import numpy as np; from mpi4py import MPI; from kernels.allreduce import plan\n"
        "class Tensor:\n"
        "    __cuda_array_interface__ = np.ones((1, 2)).__array_interface__\n"
        "with plan(MPI.COMM_WORLD, shape=2) as reducer:\n"
        "    try: reducer(Tensor())\n"
        "    except RuntimeError as error: print(error)\n"
    )
    code = "import sys; sys.modules['cupy'] = None\n" + code
    run = run_mpi(1, ["-c", code])
    assert run.returncode == 0, run.stderr
    assert "arrays in GPU memory need CuPy" in run.stdout and "pip install cupy-cuda" in run.stdout
