"""Reductions by operations of the program, and sums of fpna's own library, under `fpna run`."""

import re
import shlex
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import xxhash

from analysis.__main__ import main
from miniapps.trace import read_run
from miniapps.trace.records import ADDED
from tests.launch import run_python
from tests.mpi.test_observed_mpi import BOTH, HERE, compiler_of, debian, observed, under_debian

SUM = re.compile(r"user operation add_double2 \(operations\.c:\d+\)")
PRODUCT = re.compile(r"user operation multiply \(operations\.c:\d+\), not commutative")


def compiled(library, target, source, *options):
    command = [compiler_of(library, "mpicc"), "-g", "-O1", "-o", target, HERE / source, *options, "-lm"]
    subprocess.run(command, check=True, capture_output=True)
    return target


@pytest.mark.parametrize("library", BOTH)
def test_operations_of_the_program_are_named_recorded_and_left_to_the_library(library, tmp_path, capsys):
    program = compiled(library, tmp_path / "operations", "operations.c")
    printed = {
        guarantee: observed(3, library, tmp_path / guarantee, [program], "--guarantee", guarantee)
        for guarantee in ("none", "exact")
    }
    said = (
        "fpna run: 4 reductions on rank 0 by operations of the program, in an order that the MPI library chooses and "
        f"that may matter: {SUM.pattern}: 1 MPI_Allreduce at main \\(operations.c:\\d+\\); "
    )
    assert re.search(said, printed["none"]), printed["none"]
    assert re.search(f"4 of 4 sums on rank 0 kept the library's order: {SUM.pattern}: 1", printed["exact"])
    results = {next(line for line in text.splitlines() if line.startswith("0x")) for text in printed.values()}
    (result,) = results
    exact = float(sum(Fraction(0.1 * (rank + 1)) for rank in range(3)))
    assert [float.fromhex(word) for word in result.split()] == [exact, exact, 6.0]
    for guarantee in printed:
        (trace,) = read_run(tmp_path / guarantee, ranks=[0])
        facts = trace.attributes["reductions"]
        stated = [(own["operation"], own["guarantee"], own["ordering"]) for own in facts.values()]
        assert [rest for _, *rest in stated] == [["none", "library"]] * 4
        for operations in ([of for of, *_ in stated], [own["why"] for own in trace.attributes["unreached"]]):
            assert [sum(map(bool, map(of.fullmatch, operations))) for of in (SUM, PRODUCT)] == [2, 2], (
                operations
            )
        table = trace.tables["fingerprints"]
        given = [
            f"{hi:016x}{lo:016x}" for name, hi, lo in zip(table["name"], table["hi"], table["lo"], strict=True)
            if trace.names[name].startswith(ADDED)
        ]  # fmt: skip
        numbers = [[0.1, 1e-20]] * 2 + [[1, 1, 0, 1]] * 2
        assert given == [xxhash.xxh3_128_hexdigest(np.array(own, float)) for own in numbers]
        assert {trace.names[dtype] for dtype in trace.tables["sizes"]["dtype"]} == {"float64"}
    assert main(["show", str(tmp_path / "none")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Reductions in the order of the MPI library" in shown and "user operation add_double2" in shown
    observed(3, library, tmp_path / "again", [program])
    assert main(["divergence", str(tmp_path / "none"), str(tmp_path / "again")]) == 0


IN_PYTHON = """\
from mpi4py import MPI
import numpy as np
op = MPI.Op.Create(lambda a, b, t: None, commute=True)
MPI.COMM_WORLD.Allreduce(np.ones(2), np.zeros(2), op)
"""


def test_an_operation_of_python_has_no_function_of_mpi4py(tmp_path):
    (tmp_path / "app.py").write_text(IN_PYTHON)
    printed = observed(2, "mpich", tmp_path / "run", [sys.executable, tmp_path / "app.py"])
    assert "that may matter: user operation: 1 MPI_Allreduce at app.py:4" in printed


@pytest.mark.parametrize("link", ["shared", "static"])
@pytest.mark.parametrize("library", BOTH)
def test_sums_of_the_library_keep_their_guarantee_in_the_record(library, link, tmp_path):
    """They merge states by an operation of their own, add words, or gather: nobody is told that an order is open."""
    mpicxx = compiler_of(library)
    words = run_python(["-m", "fpna", "config", "--cflags", "--libs", "--mpicxx", str(mpicxx)], timeout=400)
    assert words.returncode == 0, words.stderr
    options = shlex.split(words.stdout)
    if link == "static":
        folder = next(word[2:] for word in options if word.startswith("-L"))
        options = [*options[:-1], f"{folder}/libfpna.a", "-fopenmp", "-lstdc++"]
    program = compiled(library, tmp_path / "sums", "own_sums.c", *options)
    for guarantee in ("none", "exact"):
        printed = observed(3, library, tmp_path / guarantee, [program], "--guarantee", guarantee)
        assert "user operation" not in printed and "kept the library's order" not in printed, printed
        assert re.search("^code 0: ", printed, re.MULTILINE)
        (trace,) = read_run(tmp_path / guarantee, ranks=[0])
        facts = trace.attributes["reductions"]
        own = {
            (call.partition(" at ")[0], of["guarantee"], of["ordering"], of["operation"])
            for call, of in facts.items()
            if "own_sums.c:24" not in call
        }
        assert own >= {
            ("MPI_Allreduce", "layout", "any order", "sum"),
            ("MPI_Allreduce", "exact", "any order", "sum"),
            ("MPI_Iallgather", "run", "tree over ranks", "sum"),
            ("MPI_Allgather", "run", "tree over ranks", "sum"),
            ("MPI_Allgather", "exact", "any order", "sum"),
        }, own
        (by_mpi,) = [
            of["guarantee"] for call, of in facts.items() if "own_sums.c:" in call and "at main" in call
        ]
        assert by_mpi == guarantee
        assert trace.attributes["unreached"] == []
    printed = observed(2, library, tmp_path / "two", [program])
    assert main(["divergence", str(tmp_path / "none"), str(tmp_path / "two")]) in (0, 3)


IN_FORTRAN = """\
module operations
contains
  subroutine longest(in, inout, n, type)
    integer :: n, type
    double precision :: in(n), inout(n)
    inout = max(in, inout)
  end subroutine
end module
program app
  use mpi
  use operations
  implicit none
  integer :: ierr, op
  double precision :: x(2), y(2)
  call MPI_Init(ierr)
  x = 1
  call MPI_Op_create(longest, .true., op, ierr)
  call MPI_Allreduce(x, y, 2, MPI_DOUBLE_PRECISION, op, MPI_COMM_WORLD, ierr)
  call MPI_Finalize(ierr)
end program
"""


@pytest.mark.slow
def test_operations_of_fortran_are_named(tmp_path):
    (tmp_path / "app.f90").write_text(IN_FORTRAN)
    command = ["mpif90.openmpi", "-g", "-o", tmp_path / "app", tmp_path / "app.f90"]
    subprocess.run(command, check=True, env=debian(), capture_output=True, cwd=tmp_path)
    under_debian(2, tmp_path / "run", [tmp_path / "app"])
    (trace,) = read_run(tmp_path / "run", ranks=[0])
    (facts,) = trace.attributes["reductions"].values()
    assert facts["operation"] == "user operation operations.longest (app.f90:3)"
