"""Programs with a static MPI library: the recorder is linked into them, or `fpna run` says how that is done."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.__main__ import main
from miniapps.trace import read_run
from tests.launch import run_mpi
from tests.mpi.test_observed_mpi import FPNA, HERE

# Where Debian's libmpich-dev has been installed, or unpacked by dpkg -x.
ROOT = Path(os.environ.get("FPNA_STATIC_MPI", "/"))
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
NEEDED = ("libucp.so.0", "libucs.so.0", "libfabric.so.1", "libhwloc.so.15")


@pytest.fixture(scope="module")
def static(tmp_path_factory):
    """static(source, *objects): a program of C or Fortran with MPICH as a static library, behind these objects."""
    archive, include = (
        ROOT / LIBRARIES.relative_to("/") / "libmpich.a",
        ROOT / "usr/include/x86_64-linux-gnu/mpich",
    )
    if not archive.exists() or not shutil.which("gcc"):
        pytest.skip(f"no {archive} (apt-get install libmpich-dev, or FPNA_STATIC_MPI=DIR with it)")
    folder = tmp_path_factory.mktemp("static")
    compiler = folder / "mpicxx"
    compiler.write_text(f'#!/bin/sh\nexec g++ -I{include} "$@"\n')
    compiler.chmod(0o755)

    def link(source, *objects, strip=False):
        target = folder / f"{Path(source).stem}{len(objects)}{strip}"
        fortran = Path(source).suffix == ".f90"
        needed = [archive, *(LIBRARIES / name for name in NEEDED), "-lm", "-lpthread"]
        needed = [archive.with_name("libmpichfort.a"), *needed] if fortran else needed
        front = ["gfortran"] if fortran else ["gcc"]
        command = [*front, "-g", "-O1", f"-I{include}", "-o", target, source, *objects, *needed]
        subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
        if strip:
            subprocess.run(["strip", target], check=True)
        return target

    link.compiler = compiler
    return link


def recorder(compiler):
    """The words that `fpna config --recorder` prints."""
    run = subprocess.run(
        [sys.executable, "-m", "fpna", "config", "--recorder", "--mpicxx", compiler],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return run.stdout.split()


def test_a_program_with_the_recorder_linked_before_a_static_mpi_is_recorded(static, tmp_path, capsys):
    """Its calls, its lines, a guarantee and a replay, as of a program with a shared library."""
    words = recorder(static.compiler)
    program = static(HERE / "wildcard.c", *words)
    assert "libmpi" not in subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    for name, order, options in (
        ("a", "123", []),
        ("b", "321", []),
        ("c", "321", ["--replay", tmp_path / "a"]),
    ):
        argv = [*FPNA, "--verbose", "--out", tmp_path / name, *options, "--", program, 3]
        run = run_mpi(4, list(map(str, argv)), env={"ORDER": order})
        assert run.returncode == 0, run.stdout + run.stderr
        assert "by the recorder in the program" in run.stderr
    (trace,) = read_run(tmp_path / "a", ranks=[0])
    assert trace.complete and "MPICH" in trace.attributes["environment"]["mpi"]
    assert "MPI_Recv at collect (wildcard.c:14) from main (wildcard.c:38)" in trace.attributes["regions"]
    assert main(["divergence", str(tmp_path / "a"), str(tmp_path / "b")]) == 3
    assert main(["divergence", str(tmp_path / "a"), str(tmp_path / "c")]) == 0
    assert "message order" in capsys.readouterr().out
    sums = static(HERE / "later.c", *words)
    run = run_mpi(3, list(map(str, [*FPNA, "--guarantee", "exact", "--out", tmp_path / "d", "--", sums])))
    assert run.returncode == 0 and re.search(r"^\d\d compared, 0 differ$", run.stdout, re.MULTILINE), (
        run.stdout
    )
    (trace,) = read_run(tmp_path / "d", ranks=[1])
    assert {
        own["guarantee"] for own in trace.attributes["reductions"].values() if own["operation"] == "sum"
    } == {"exact"}


COUNTED = """\
#include <mpi.h>
int main(int c, char **v) {
    double x[2] = {1, 2}, y[2] = {0};
    int counts[2] = {1, 1}, places[2] = {0, 8};
    MPI_Datatype types[2] = {MPI_DOUBLE, MPI_DOUBLE};
    MPI_Init(&c, &v);
    MPI_Alltoallw(x, counts, places, types, y, counts, places, types, MPI_COMM_WORLD);
    MPI_Finalize();
    return y[0] != y[1];
}
"""


def test_calls_that_are_counted_reach_the_static_library(static, tmp_path):
    (tmp_path / "counted.c").write_text(COUNTED)
    program = static(tmp_path / "counted.c", *recorder(static.compiler))
    run = run_mpi(2, list(map(str, [*FPNA, "--out", tmp_path / "run", "--", program])))
    assert run.returncode == 0, run.stdout + run.stderr
    assert read_run(tmp_path / "run") and "not recorded: 2 MPI_Alltoallw" in run.stderr


@pytest.mark.slow
def test_fortran_calls_pass_through_the_functions_of_c(static, tmp_path):
    if not shutil.which("gfortran"):
        pytest.skip("no gfortran")
    (tmp_path / "sum.f90").write_text(
        "program sum\n  implicit none\n  include 'mpif.h'\n  integer :: ierr\n  double precision :: x, y\n"
        "  call MPI_Init(ierr)\n  x = 1\n"
        "  call MPI_Allreduce(x, y, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)\n"
        "  if (y /= 2) stop 3\n  call MPI_Finalize(ierr)\nend program\n"
    )
    program = static(tmp_path / "sum.f90", *recorder(static.compiler))
    run = run_mpi(2, list(map(str, [*FPNA, "--out", tmp_path / "run", "--", program])))
    assert run.returncode == 0, run.stdout + run.stderr
    (trace,) = read_run(tmp_path / "run", ranks=[0])
    (call,) = trace.attributes["reductions"]
    assert call.startswith("MPI_Allreduce at ") and "sum.f90:8" in call, call


@pytest.mark.parametrize("strip", [False, True])
def test_a_static_mpi_without_the_recorder_is_refused_with_the_remedy(strip, static, tmp_path):
    program = static(HERE / "wildcard.c", strip=strip)
    run = run_mpi(2, list(map(str, [*FPNA, "--out", tmp_path / "run", "--", program, 1])))
    assert run.returncode == 2
    (line,) = [line for line in run.stderr.splitlines() if line.startswith("fpna run: ")]
    assert "its MPI library is linked statically, so nothing can be preloaded" in line
    assert "link $(fpna config --recorder) behind the program's own objects and before MPI" in line
    assert not (tmp_path / "run").exists()


def test_a_recorder_of_another_version_is_refused(tmp_path):
    """Also where no static MPI is at hand: the text that the recorder leaves in the program decides."""
    (tmp_path / "app.c").write_text(
        'const char text[] = "fpna run: the recorder of logs of version 1\\n";\n'
        "int main(int c, char **v) { return text[c] == 0; }\n"
    )
    subprocess.run(["gcc", "-o", tmp_path / "app", tmp_path / "app.c"], check=True)
    run = run_mpi(1, list(map(str, [*FPNA, "--out", tmp_path / "run", "--", tmp_path / "app"])))
    assert run.returncode == 2 and "the recorder in it is of another version of fpna" in run.stderr
    (tmp_path / "app.c").write_text(
        "int PMPI_Init(int *c, char ***v) { return 0; }\nint main(void) { return 0; }\n"
    )
    subprocess.run(["gcc", "-o", tmp_path / "app", tmp_path / "app.c"], check=True)
    run = run_mpi(1, list(map(str, [*FPNA, "--out", tmp_path / "run", "--", tmp_path / "app"])))
    assert run.returncode == 2 and "its MPI library is linked statically" in run.stderr


def test_config_refuses_a_recorder_beside_the_library_of_sums():
    run = run_mpi(1, ["-m", "fpna", "config", "--recorder", "--libs"])
    assert run.returncode == 2 and "--recorder is no part of the library of sums" in run.stderr
