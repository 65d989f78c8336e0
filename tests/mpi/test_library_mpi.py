"""The library of sums for C, C++ and Fortran: `fpna config` builds it for each MPI, programs link it, and its bits are
those of kernels.sums. Its examples have one hash on any number of ranks and threads, under every MPI."""

import json
import os
import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.launch import LIBRARIES, ROOT, home, launcher, libraries, run_command, run_python
from tests.mpi import example_twins
from tests.mpi.sectioned import PROGRAMS, layouts, sections
from tests.mpi.test_observed_mpi import DEBIAN as DEBIANS
from tests.mpi.test_observed_mpi import debian
from tests.ranks import on_ranks

EXAMPLES = ROOT / "docs" / "examples" / "sums"
CALLS, DRAWN = "library_calls.py", "library_drawn.py"
DEBIAN = "debian"
PAGE = (ROOT / "docs" / "how-to" / "link.md").read_text()
PLAIN_ON_PAGE = [
    (f"{name}.{'c' if name == 'cg' else 'cpp'}", int(ranks), said)
    for ranks, name, said in re.findall(r"mpirun -n (\d) \./(cg|deposit) plain\n(.*)", PAGE)
] + [
    ("column.f90", int(ranks), said)
    for ranks, said in re.findall(r"^\| (\d) \| `(hash \w+)`", PAGE, re.MULTILINE)
]
FLAGS = ["-O2", "-Wall", "-Werror", "-ffp-contract=off"]
# (library, ranks, threads)
RUNS = [("mpich", 1, 4), ("mpich", 3, 2), ("mpich", 8, 1), ("openmpi", 2, 4), ("openmpi", 5, 1)]
PLAIN = [("mpich", 1, 1), ("mpich", 2, 1), ("mpich", 3, 1)]


@cache
def config(mpicxx, *options):
    """What `fpna config` prints, by name."""
    argv = ["-m", "fpna", "config", "--json", "--mpicxx", str(mpicxx), *options]
    run = run_python(argv, timeout=400)
    assert run.returncode == 0, run.stderr
    return {name: shlex.split(text) for name, text in json.loads(run.stdout).items()}


def need(*programs):
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        pytest.skip(f"no {' and no '.join(missing)}")


def compilers(library):
    """A directory of the compilers of an MPI."""
    need("g++", "gcc")
    if library == DEBIAN:
        debian()
        return Path(DEBIANS).parent
    command, _ = launcher(library)
    if not (Path(command[0]).parent / "mpicxx").exists():
        pytest.skip(f"no mpicxx beside {command[0]}")
    return Path(command[0]).parent


def start(library, ranks, program, *words, threads=1):
    """The CompletedProcess of a program on ranks of an MPI."""
    on_debian = ["mpirun.openmpi", "--oversubscribe"]
    command, env = (on_debian, debian()) if library == DEBIAN else launcher(library)
    words = [*command, "-n", str(ranks), str(program), *words]
    return run_command(words, env | {"OMP_NUM_THREADS": threads}, 100, None)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return builder(tmp_path_factory.mktemp("programs"))


def builder(folder):
    """build(library, source, *flags): the program, compiled once with what `fpna config` prints and without a warning;
    `compiler`: in place of the one that MPI's wrapper calls."""
    done = {}

    def build(library, source, *flags, compiler=None):
        key = library, source, flags, compiler
        if key not in done:
            bin, place = compilers(library), folder / library
            place.mkdir(exist_ok=True)  # of modules of Fortran
            target = place / f"{len(done)}-{source.stem}"
            words = [str(word) for word in (*words_for(library, source, target, bin), *flags)]
            if compiler:
                shown = subprocess.run([words[0], "-show"], capture_output=True, text=True, check=True).stdout
                words = [compiler, *words[1:], *shown.split()[1:]]
            run = subprocess.run(
                words, capture_output=True, text=True, cwd=place,
                env=os.environ | {"PATH": f"{bin}{os.pathsep}{os.environ['PATH']}"},
            )  # fmt: skip
            assert (run.returncode, run.stderr) == (0, ""), run.stderr
            done[key] = target
        return done[key]

    return build


def words_for(library, source, target, bin):
    """The command that compiles a program. The MPICH of the package index has no Fortran: a module here calls its C."""
    tail = ".openmpi" if library == DEBIAN else ""
    known = config(bin / f"mpicxx{tail}")
    if source.suffix != ".f90":
        compiler = {".c": "mpicc", ".cpp": "mpicxx"}[source.suffix]
        return [
            bin / f"{compiler}{tail}",
            *FLAGS,
            "-fopenmp",
            source,
            "-o",
            target,
            *known["cflags"],
            *known["libs"],
        ]
    need("gfortran")
    if library == DEBIAN:
        need(f"mpifort{tail}")
        front = [bin / f"mpifort{tail}", *FLAGS, "-std=f2018", *known["fflags"], source]
        return [*front, "-o", target, *known["flibs"]]
    lib = home(library) / "lib"
    front = ["gfortran", *FLAGS, "-std=f2018", *known["fflags"], PROGRAMS / "mpich_module.f90", source]
    return [*front, "-o", target, *known["flibs"], f"-L{lib}", f"-Wl,-rpath,{lib}", "-lmpi"]


def of_language(library, source):
    """Of two Open MPIs the one that has Fortran, for programs in it."""
    return DEBIAN if library == "openmpi" and source.suffix == ".f90" else library


@pytest.mark.parametrize("name", ["column.f90", "deposit.cpp", "cg.c"])
def test_an_example_has_one_hash_with_the_library_and_several_without(name, built):
    source, lines = EXAMPLES / name, {"fpna": {}, "plain": {}}
    for how, runs in (("fpna", RUNS), ("plain", PLAIN)):
        for library, ranks, threads in runs:
            library = of_language(library, source)
            run = start(library, ranks, built(library, source), how, threads=threads)
            assert run.returncode == 0, run.stderr
            (found,) = re.findall(r"hash ([0-9a-fA-F]+)$", run.stdout, re.MULTILINE)
            lines[how].setdefault(found, []).append((library, ranks, threads))
    assert len(lines["fpna"]) == 1, lines["fpna"]
    assert len(lines["plain"]) > 1, lines["plain"]
    (found,) = lines["fpna"]
    assert found in PAGE


@pytest.mark.parametrize("name", ["column.f90", "deposit.cpp", "cg.c"])
def test_an_example_prints_what_the_kernels_of_python_add(name, built):
    source, library = EXAMPLES / name, LIBRARIES[0]
    run = start(library, 2, built(library, source), "fpna", threads=2)
    known, number = getattr(example_twins, source.stem)()
    (found,) = re.findall(r"hash ([0-9a-fA-F]+)$", run.stdout, re.MULTILINE)
    (shown,) = re.findall(r"(?:volume|first cell|residual) +([0-9.eE+-]+)", run.stdout)
    assert (found, float(shown)) == (known, number), run.stdout


def test_the_plain_sums_of_the_page_are_those_of_this_machine(built):
    """Of programs without the library, under MPICH."""
    assert len(PLAIN_ON_PAGE) == 7
    for name, ranks, said in PLAIN_ON_PAGE:
        source = EXAMPLES / name
        run = start(LIBRARIES[0], ranks, built(LIBRARIES[0], source), "plain")
        assert run.stdout.splitlines()[-1] == said


@cache
def reported(library, size, env=()):
    known = config(compilers(library) / "mpicxx")
    (prefix,) = known["prefix"]
    run = on_ranks(size, [PROGRAMS / CALLS, f"{prefix}/lib/libfpna.so"], library, dict(env), timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout)


@layouts(1, 3, slow=(2, 4), others=(2,))
@pytest.mark.parametrize("name", sections(CALLS))
def test_calls_of_c(name, library, size):
    assert reported(library, size)[name] == []


def test_the_environment_makes_all_calls_compare():
    name = "what_all_ranks_pass_is_compared_later_on_demand"
    assert reported(LIBRARIES[0], 2, (("FPNA_CHECK", "1"),))[name] == []


def drawn(library, size, cases, seed):
    (prefix,) = config(compilers(library) / "mpicxx")["prefix"]
    words = [PROGRAMS / DRAWN, f"{prefix}/lib/libfpna.so", "--cases", cases, "--seed", seed]
    run = on_ranks(size, words, library, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    return json.loads(run.stdout)["failures"]


@layouts(1, 4, slow=(2, 3), others=(2,))
def test_drawn_calls_have_the_bits_of_python(library, size):
    assert drawn(library, size, 500, 1) == []


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_thousands_of_drawn_calls(size):
    assert drawn(LIBRARIES[0], size, 4000, 100 + size) == []


@pytest.mark.parametrize("library", [LIBRARIES[0], DEBIAN])
def test_calls_of_fortran(library, built):
    program = built(library, PROGRAMS / "fortran_calls.f90")
    for ranks in (1, 3):
        run = start(library, ranks, program)
        assert (run.returncode, run.stdout) == (0, "76 checks\n"), run.stdout + run.stderr
        run = start(library, ranks, program, "stop")
        assert run.returncode and "it goes on" not in run.stdout
        said = f"ERROR STOP fpna_sum: rank {ranks - 1}: mask has the shape (6, 4), expected (6, 5)"
        assert said in run.stderr


def test_one_build_serves_every_mpi_with_the_abi_of_mpi_5(tmp_path):
    """C and Fortran, whose handles are integers there."""
    bin = compilers(LIBRARIES[0])
    if not (bin / "mpicxx_abi").exists():
        pytest.skip("this MPI has no mpicxx_abi")
    need("gfortran")
    known, (lib,) = config(bin / "mpicxx_abi"), {str(home(LIBRARIES[0]) / "lib")}
    source = tmp_path / "handle.f90"
    source.write_text(
        "program handle\n  use fpna\n  use, intrinsic :: iso_c_binding\n"
        "  interface\n    integer(c_int) function init(argc, argv) bind(c, name='MPI_Init')\n      import\n"
        "      type(c_ptr), value :: argc, argv\n    end function\n"
        "    integer(c_int) function finalize() bind(c, name='MPI_Finalize')\n      import\n    end function\n"
        "  end interface\n  integer, parameter :: world = int(z'101')  ! MPI_COMM_WORLD of the standard\n"
        "  integer :: code\n  code = init(c_null_ptr, c_null_ptr)\n"
        "  print '(f4.1)', fpna_sum([1d0, 1d16, -1d16, 1d0], world)\n  code = finalize()\nend program\n"
    )
    programs = {
        "cg": [bin / "mpicc_abi", *FLAGS, EXAMPLES / "cg.c", *known["cflags"], *known["libs"]],
        "handle": [
            "gfortran", source, *known["fflags"], *known["flibs"], f"-L{lib}", f"-Wl,-rpath,{lib}", "-lmpi_abi",
        ],
    }  # fmt: skip
    for name, words in programs.items():
        made = subprocess.run([*map(str, words), "-o", str(tmp_path / name)], capture_output=True, text=True)
        assert (made.returncode, made.stderr) == (0, ""), made.stderr
    needed = subprocess.run(["ldd", tmp_path / "cg"], capture_output=True, text=True).stdout
    assert "libmpi_abi.so" in needed and "libmpi.so" not in needed
    assert example_twins.cg()[0] in start(LIBRARIES[0], 3, tmp_path / "cg", "fpna").stdout
    assert start(LIBRARIES[0], 3, tmp_path / "handle").stdout.split() == ["6.0"] * 3


@libraries
def test_a_call_outside_of_mpi_is_refused(library, built, tmp_path):
    source = tmp_path / "early.cpp"
    source.write_text(
        "#include <cstdio>\n#include <fpna.hpp>\n"
        "int main() {\n"
        "    const double x[] = {1, 2};\n"
        "    try { fpna::sum(x, 2, MPI_COMM_WORLD); } catch (const fpna::error &error) { std::puts(error.what()); }\n"
        "    fpna_acc sum = {};\n"
        "    if (fpna_acc_allreduce(&sum, 1, MPI_COMM_WORLD)) std::puts(fpna_error());\n"
        "}\n"
    )
    run = run_command([str(built(library, source))], launcher(library)[1], 60, None)
    said = "MPI is not running: call it between MPI_Init and MPI_Finalize"
    assert run.stdout.splitlines() == [f"fpna_sum_d: {said}", f"fpna_acc_allreduce: {said}"], run.stderr
