"""`fpna config --serial`: programs without MPI that make, pkg-config and CMake link with the library of sums."""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from kernels import __version__
from miniapps.programs.config import main
from miniapps.programs.library import FORTRAN_FLAGS, SOURCES

PROGRAMS = {
    "app.c": """
#include <fpna.h>
#include <stdio.h>
#ifdef MPI_VERSION
#error mpi.h was read
#endif
int main(void) {
    const double x[] = {1e300, 3, -1e300, 0.5};
    double total = 0;
    if (fpna_sum_d(FPNA_EXACT, FPNA_COMM_SELF, 4, 1, x, 1, 0, &total, NULL)) return 1;
    return printf("%g\\n", total) < 0;
}
""",
    "app.cpp": """
#include <fpna.hpp>
#include <iostream>
int main() {
    const std::vector<double> x = {1e300, 3, -1e300, 0.5};
    fpna::accumulator<double> sum;
    for (double each : x) sum.add(each);
    const double total = fpna::sum(x.data(), x.size(), FPNA_COMM_SELF);
    if (sum.allreduce(FPNA_COMM_SELF).value() == total) std::cout << total << std::endl;
}
""",
    "app.f90": """
program app
  use fpna
  print '(f3.1)', fpna_sum([1d300, 3d0, -1d300, 0.5d0], 0)
end program
""",
}
COMPILERS = {"app.c": "gcc", "app.cpp": "g++", "app.f90": "gfortran"}


def need(*programs):
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        pytest.skip(f"no {' and no '.join(missing)}")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The answers of `fpna config` for a copy of the serial library, by name."""
    need("g++")
    place = tmp_path_factory.mktemp("library") / "fpna"
    with pytest.MonkeyPatch.context() as patch:
        printed = []
        patch.setattr("builtins.print", lambda *words, **_: printed.extend(words))
        assert main(["--serial", "--json", "--install", str(place)]) == 0
    answers = {name: shlex.split(text) for name, text in json.loads(printed[-1]).items()}
    assert answers["prefix"] == [str(place)]
    return answers


def run(*command, cwd, **env):
    """What a command prints."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=os.environ | env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def sources(tmp_path):
    """A directory with the programs."""
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", PROGRAMS)
def test_its_options_link_a_program(name, installed, sources):
    need(COMPILERS[name])
    flags, libs = ("fflags", "flibs") if name == "app.f90" else ("cflags", "libs")
    run(COMPILERS[name], "-Wall", "-Werror", *installed[flags], name, *installed[libs], cwd=sources)
    assert run("./a.out", cwd=sources) == "3.5\n"
    assert "mpi" not in run("ldd", "a.out", cwd=sources).lower().replace(str(sources), "")


def test_pkg_config_finds_it(installed, sources):
    need("gcc", "pkg-config")
    (path,) = installed["pkgconfig"]
    words = run("pkg-config", "--cflags", "--libs", "fpna", cwd=sources, PKG_CONFIG_PATH=path)
    run("gcc", "app.c", *shlex.split(words), cwd=sources)
    assert run("pkg-config", "--modversion", "fpna", cwd=sources, PKG_CONFIG_PATH=path) == f"{__version__}\n"
    assert run("./a.out", cwd=sources) == "3.5\n"


def test_cmake_finds_it(installed, sources):
    need("cmake", "make", "g++", "gfortran")
    (sources / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\n"
        "project(app LANGUAGES CXX Fortran)\n"
        "find_package(Fpna 0.1 REQUIRED)\n"
        "add_executable(app_cpp app.cpp)\n"
        "target_link_libraries(app_cpp Fpna::fpna)\n"
        "add_executable(app_f app.f90)\n"
        "target_link_libraries(app_f Fpna::fortran)\n"
    )
    run("cmake", "-B", "build", *installed["cmake"], cwd=sources)
    run("cmake", "--build", "build", cwd=sources)
    assert [run(f"build/{name}", cwd=sources) for name in ("app_cpp", "app_f")] == ["3.5\n", "3.5\n"]


def test_the_module_compiles_without_a_warning(tmp_path):
    need("gfortran")
    run("gfortran", *FORTRAN_FLAGS, "-Wall", "-Wextra", "-Werror", "-c", SOURCES / "fpna.f90", cwd=tmp_path)


def test_a_directory_that_exists_is_not_written_over(tmp_path, capsys):
    need("g++")
    assert main(["--serial", "--install", str(tmp_path)]) == 2
    assert f"--install {tmp_path}: it exists; name a new directory" in capsys.readouterr().err
    assert list(Path(tmp_path).iterdir()) == []


CANCELLING = """
#include <fpna.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) { /* 100 numbers of 80 binades and their opposites, in another order; 2^-60 stays */
    double x[201], total;
    for (int i = 0; i < 100; ++i) {
        x[2 * i] = ldexp(rand() / 2147483648.0 - 0.5, rand() % 80 - 40);
        x[199 - 2 * i] = -x[2 * i];
    }
    x[200] = 0x1p-60;
    if (fpna_sum_d(FPNA_EXACT, FPNA_COMM_SELF, 201, 1, x, 1, 0, &total, NULL)) return 1;
    return printf("%a\\n", total) < 0;
}
"""


@pytest.mark.parametrize(
    "machine",
    [
        [],
        ["valgrind", "-q"],  # sets no floating-point flags
        *(["qemu-x86_64", "-cpu", cpu] for cpu in ("Nehalem", "Haswell", "EPYC-Rome", "max")),
    ],
    ids=" ".join,
)
def test_an_exact_sum_is_exact_on_other_machines(machine, installed, tmp_path):
    need("gcc", *machine[:1])
    (tmp_path / "cancelling.c").write_text(CANCELLING)
    run("gcc", "cancelling.c", *installed["cflags"], *installed["libs"], "-lm", cwd=tmp_path)
    assert run(*machine, "./a.out", cwd=tmp_path) == "0x1p-60\n"
