"""All-reduces of arrays in GPU memory under real MPI libraries, by the stand-in for CuPy of tests/cuda_on_host."""

import json
import os
import re
from functools import cache
from pathlib import Path

import pytest

from tests.launch import LIBRARIES, ROOT, run_mpi

PROGRAM = Path(__file__).parent / "programs" / "allreduce_device.py"
SECTIONS = re.findall(r"^            (\w+),$", PROGRAM.read_text().partition("report(\n")[2], re.MULTILINE)
STAND_IN = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "cuda_on_host")])}


@cache
def launched(library, size):
    """The program's report for one library and number of ranks, launched once for all tests."""
    run = run_mpi(size, [str(PROGRAM)], library=library, env=STAND_IN, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("size", (1, 3))
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("section", SECTIONS)
def test_section(section, library, size):
    assert launched(library, size)[section] == []


def test_every_section_is_tested():
    """All functions of the program that take nothing, but the one that is called before CuPy is there."""
    assert len(SECTIONS) == len(re.findall(r"^def \w+\(\):", PROGRAM.read_text(), re.MULTILINE)) - 1


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
