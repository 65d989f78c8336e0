"""The benchmark of the GPU path, with the stand-in for CuPy: it checks and times every CUDA kernel that there is."""

import re

import pytest

from kernels import cuda
from tests.kernels.test_cuda_on_host import STAND_IN, pytestmark
from tests.launch import ROOT, run_python

__all__ = ["pytestmark"]  # needs a C++ compiler

# Between parts of an input of more rows than `--quick` has: `test_cuda_scatter.py` has their bits.
RARE = {"carry_fixed_point", "carry_exact"}
IN_PROCESS = ["sums", "shapes", "scatter", "spmv", "contract", "attention", "vectors", "wires", "kernels"]

LAUNCHES = """
import sys
import cupy
from benchmarks.gpu.__main__ import PARTS, main

get_function, launched = cupy.RawModule.get_function, set()

def noted(module, name):
    launch = get_function(module, name)
    return lambda *arguments, **options: launched.add(name) or launch(*arguments, **options)

cupy.RawModule.get_function = noted
code = main()
print("PARTS", *PARTS)
print("LAUNCHED", *launched)
sys.exit(code)
"""


def benchmark(tmp_path, *parts, program=LAUNCHES):
    """What the benchmark of these parts prints, and its exit code."""
    argv = ["--quick", "--quiet", "--out", str(tmp_path), "--only", *parts]
    return run_python(["-c", program, *argv], {"PYTHONPATH": STAND_IN}, timeout=300, cwd=ROOT)


def declared():
    """Every kernel of the CUDA sources."""
    pattern = r'extern "C" __global__ void (?:__launch_bounds__\(.*?\)\s+)?(\w+)\('
    return {name for path in cuda.HERE.glob("*.cu") for name in re.findall(pattern, cuda.source(path.stem))}


@pytest.mark.slow
def test_every_kernel_is_launched_but_two_and_all_checks_pass(tmp_path):
    run = benchmark(tmp_path, *IN_PROCESS)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = {line.split()[0]: set(line.split()[1:]) for line in run.stdout.splitlines()[-2:]}
    assert lines["LAUNCHED"] == declared() - RARE
    assert lines["PARTS"] == {*IN_PROCESS, "coupled", "solver"}
    assert "CHECKS: PASS" in run.stdout and "not run" not in run.stdout


@pytest.mark.slow
def test_whole_runs_have_the_bits_of_the_cpu(tmp_path):
    run = benchmark(tmp_path, "coupled", "solver")
    assert run.returncode == 0 and "CHECKS: PASS" in run.stdout, run.stdout + run.stderr
    assert run.stdout.count("same bits") == 5 and "not run" not in run.stdout


def test_other_bits_are_a_failed_check_and_a_part_that_breaks_off_does_not_take_the_others_along(tmp_path):
    program = """
import kernels.cuda, kernels.wires.reference
from benchmarks.gpu import attention, wires
source = kernels.cuda.source
kernels.cuda.source = lambda name: source(name).replace("top + logarithm", "logarithm")
wires.cells_of = None
attention.SHAPES = attention.SHAPES[2:]
"""
    run = benchmark(tmp_path, "wires", "attention", program=program + LAUNCHES)
    assert run.returncode == 3, run.stdout + run.stderr
    failed = run.stdout.split("CHECKS: FAIL ")[1].splitlines()[0].split("; ")
    assert [what.split(" (")[0] for what in failed] == [
        "wires",
        "one query",
        "one query",
        "one query",
        "one query",
    ]
    assert "wires" in run.stdout and "FAIL TypeError: 'NoneType' object is not callable" in run.stdout
