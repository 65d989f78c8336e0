"""The benchmark of the GPU path, with the stand-in for CuPy: it checks and times every CUDA kernel that there is."""

import json
import os
import re

import pytest

from kernels import cuda
from tests.kernels.test_cuda_on_host import STAND_IN, pytestmark
from tests.launch import ROOT, run_python

__all__ = ["pytestmark"]  # needs a C++ compiler

# Between parts of an input of more rows than `--quick` has: `test_cuda_scatter.py` has their bits.
RARE = {"carry_exact"}
IN_PROCESS = ["sums", "shapes", "scatter", "spmv", "contract", "attention", "vectors", "wires", "kernels"]

ROWS = """
import argparse
import sys
import cupy
from benchmarks.gpu.__main__ import PARTS, rows_of

get_function, launched = cupy.RawModule.get_function, set()

def noted(module, name):
    launch = get_function(module, name)
    return lambda *arguments, **options: launched.add(name) or launch(*arguments, **options)

cupy.RawModule.get_function = noted
for part in sys.argv[1:]:
    for row in rows_of(part, argparse.Namespace(quick=True, quiet=True)):
        print(f"{part}: {row['what']}: {row['check']}")
print("PARTS", *PARTS)
print("LAUNCHED", *launched)
"""


def rows(*parts, program=ROWS):
    """(part, what, check) of each row of these parts, all in one process, and what the program prints last."""
    run = run_python(["-c", program, *parts], {"PYTHONPATH": STAND_IN}, timeout=300, cwd=ROOT)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = run.stdout.splitlines()
    return [tuple(line.split(": ", 2)) for line in lines[:-2]], {
        line.split()[0]: set(line.split()[1:]) for line in lines[-2:]
    }


def benchmark(tmp_path, *options, path=()):
    """The benchmark as it is called; `path` comes first on PYTHONPATH."""
    env = {"PYTHONPATH": os.pathsep.join([*map(str, path), STAND_IN])}
    argv = ["-m", "benchmarks.gpu", "--quick", "--quiet", "--out", str(tmp_path), *options]
    return run_python(argv, env, timeout=300, cwd=ROOT)


def declared():
    """Every kernel of the CUDA sources."""
    pattern = r'extern "C" __global__ void (?:__launch_bounds__\(.*?\)\s+)?(\w+)\('
    return {name for path in cuda.HERE.glob("*.cu") for name in re.findall(pattern, cuda.source(path.stem))}


@pytest.mark.slow
def test_every_kernel_is_launched_but_two_and_all_checks_pass():
    found, printed = rows(*IN_PROCESS)
    assert printed["LAUNCHED"] == declared() - RARE
    assert printed["PARTS"] == {*IN_PROCESS, "coupled", "solver"} and {part for part, *_ in found} == {
        *IN_PROCESS
    }
    assert not any(check.startswith(("FAIL", "not run")) for *_, check in found), found


@pytest.mark.slow
def test_whole_runs_have_the_bits_of_the_cpu(tmp_path):
    run = benchmark(tmp_path, "--only", "coupled", "solver")
    assert run.returncode == 0 and "CHECKS: PASS" in run.stdout, run.stdout + run.stderr
    assert run.stdout.count("same bits") == 5 and "not run" not in run.stdout


def test_other_bits_and_a_part_that_breaks_off_are_failed_checks():
    program = """
import kernels.cuda, kernels.wires.reference
from benchmarks.gpu import attention, wires
source = kernels.cuda.source
kernels.cuda.source = lambda name: source(name).replace("top + logarithm", "logarithm")
wires.cells_of = None
attention.SHAPES = attention.SHAPES[2:]
"""
    found, _ = rows("wires", "attention", program=program + ROWS)
    assert found[0] == ("wires", "wires", "FAIL TypeError: 'NoneType' object is not callable")
    assert [check for *_, check in found[1:]] == ["FAIL: not the bits of the CPU"] * 4


def test_a_part_whose_process_dies_does_not_take_the_others_along(tmp_path):
    dying = "import os, sys; {'--rows', 'wires'} <= {*sys.orig_argv} and os._exit(7)"
    (tmp_path / "sitecustomize.py").write_text(dying)
    run = benchmark(tmp_path / "out", "--only", "wires", "vectors", path=[tmp_path])
    assert run.returncode == 3 and "CHECKS: FAIL wires\n" in run.stdout, run.stdout + run.stderr
    (file,) = (tmp_path / "out").glob("host-stand-in-*[0-9].json")
    saved = json.loads(file.read_text())
    assert [row["check"] for row in saved["wires"]] == ["FAIL its process ended with 7 and no rows"]
    assert len(saved["vectors"]) > 5 and saved["machine"]["device"] == "host stand-in"


def test_a_part_that_does_not_end_in_time_is_a_failed_check(tmp_path):
    run = benchmark(tmp_path, "--only", "sums", "--limit", "0.1")
    assert run.returncode == 3 and "FAIL no end after 0.1 s" in run.stdout, run.stdout + run.stderr
