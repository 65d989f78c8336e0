"""Every function of MPI is recorded, counted as unseen, or left alone for a reason, in C and in Fortran."""

import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.harness.launching import LIBRARIES
from miniapps.programs import building, functions
from tests.mpi.test_observed_mpi import DEBIAN, compiler_of

COUNTED = {name for group in functions.COUNTED.values() for name in group}
MPICH = "/usr/bin/mpicxx.mpich"
OF_FORTRAN_ALONE = re.compile(r"mpi_(f_sync_reg|sizeof\w*|\w+_fn_null|\w+_cptr)")  # which carry no data


def exported(library):
    """The functions that a shared library defines."""
    done = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True)
    return {line.split()[-1] for line in done.stdout.splitlines()}


def strong(library):
    """Those that are not weak: counted.cpp defines weak ones."""
    done = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True)
    return {line.split()[-1] for line in done.stdout.splitlines() if line.split()[-2] == "T"}


@pytest.mark.parametrize("library", [*LIBRARIES, "debian"])
def test_every_function_of_the_header_is_recorded_counted_or_left_alone(library):
    if library == "debian" and not Path(DEBIAN).exists():
        pytest.skip("no Open MPI of Debian (apt-get install libopenmpi-dev)")
    compiler = DEBIAN if library == "debian" else compiler_of(library)
    names = building.declared(compiler)
    assert len(names) > 300 and {"MPI_Send", "MPI_Wtime", "MPI_Comm_c2f"} <= set(names)
    preloaded = building.build(str(compiler))
    recorded = {name for name in strong(preloaded) if name.startswith("MPI_")}
    lists = {
        name: (
            name in recorded,
            functions.plain(name) in COUNTED and name not in recorded,
            bool(functions.ignored(name)),
        )
        for name in names
    }
    assert {name: found for name, found in lists.items() if sum(found) != 1} == {}
    # What is not left alone is there, and nothing that the library lacks: programs look for functions by name.
    there = {name for name in exported(preloaded) if name.startswith("MPI_")}
    assert there == {name for name in names if not functions.ignored(name)}


@pytest.mark.parametrize(
    ("library", "compiler"),
    [("libmpi_mpifh.so.40", DEBIAN), ("libmpi_usempif08.so.40", DEBIAN), ("libmpichfort.so.12", MPICH)],
)
def test_every_function_of_fortran_is_recorded_counted_or_left_alone(library, compiler):
    """Open MPI's functions of Fortran do not call those of C, so that each is needed here; MPICH's do."""
    found = list(Path("/usr/lib").glob(f"*/{library}"))
    if not found or not Path(compiler).exists():
        pytest.skip(f"no {library} or {compiler} (apt-get install libopenmpi-dev libmpich-dev)")
    suffix = "_f08_" if "f08" in library else "_"
    names = {
        own.removesuffix(suffix) for own in exported(found[0]) if re.fullmatch(rf"mpi_\w+[a-z]{suffix}", own)
    }
    names = {own for own in names if not re.search(r"_(f08(ts)?|f|large|fn)$|__$", own)}
    assert len(names) > 150 and {"mpi_wait", "mpi_comm_split"} <= names
    in_c = {own.lower(): own for own in building.declared(compiler)}
    there = exported(building.build(compiler))
    lacking = {
        own
        for own in names
        if f"{own}{suffix}" not in there
        and not (compiler == MPICH and in_c.get(own) in there)
        and not functions.ignored(in_c.get(own, "MPI_" + own.removeprefix("mpi_").capitalize()))
    }
    assert {own for own in lacking if not OF_FORTRAN_ALONE.fullmatch(own)} == set()
