"""Build the library of sums for programs in C, C++ and Fortran (kernels/library) with the site's compilers.

It becomes a directory as an installation makes it: `include`, `lib` with a shared and a static library,
`lib/pkgconfig`, `lib/cmake/Fpna`. Each MPI, and none, has its own; `fpna config` names it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import kernels
from kernels import __version__
from miniapps.errors import UsageError
from miniapps.programs.building import cache, compiled, digest, mpi_compiler, objects

KERNELS = Path(kernels.__file__).parent
SOURCES = KERNELS / "library"
UNITS = (
    "sums.cpp", "accumulators.cpp", "locations.cpp", "scatter.cpp", "fortran.cpp", "../native/cut.cpp",
    "../native/halves.cpp",
)  # fmt: skip
WITH_MPI = ("reductions.cpp",)
FORTRAN = "fpna.f90"
HEADERS = ("fpna.h", "fpna.hpp")
# As the extension kernels._native is built (setup.py): no contraction, no reassociation.
FLAGS = (
    "-std=c++17", "-O3", "-fPIC", "-fopenmp", "-fvisibility=hidden", "-ffp-contract=off", "-fno-fast-math",
    "-fno-math-errno", "-fno-trapping-math", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX",
)  # fmt: skip
FORTRAN_FLAGS = ("-std=f2018", "-O2", "-fPIC", "-ffp-contract=off")
EXPORTS = "{ global: fpna_*; local: *; };\n"
SERIAL = "-DFPNA_SERIAL"
PLAIN_COMPILERS = ("c++", "g++", "clang++")
WHAT = "the library of sums"


@dataclass(frozen=True)
class Built:
    """A built library: its directory, whether it is without MPI, and whether it has the module of Fortran."""

    prefix: Path
    serial: bool
    fortran: bool

    @property
    def cflags(self) -> list[str]:
        """Options to compile with."""
        return [f"-I{self.prefix / 'include'}", *([SERIAL] if self.serial else [])]

    @property
    def libs(self) -> list[str]:
        """Options to link with."""
        lib = self.prefix / "lib"
        return [f"-L{lib}", f"-Wl,-rpath,{lib}", "-lfpna"]

    @property
    def flibs(self) -> list[str]:
        """Options to link a Fortran program with."""
        return [self.libs[0], "-lfpna_fortran", *self.libs[1:]]


def build(mpicxx: str | None = None, mpifort: str | None = None, serial: bool = False) -> Built:
    """The library for an MPI, or `serial` for none; compiles it unless it is in the cache.

    `mpicxx`: its C++ compiler, otherwise the first on PATH. `mpifort`: its Fortran compiler; without one on PATH there
    is no module of Fortran. Raises UsageError.
    """
    compiler = _serial_compiler(mpicxx) if serial else mpi_compiler(mpicxx)
    fortran = _fortran_compiler(mpifort, compiler, serial)
    flags = [*FLAGS, *([SERIAL] if serial else []), f'-DFPNA_VERSION="{__version__}"']
    sources = [*SOURCES.iterdir(), *(KERNELS / "include").glob("*.hpp"), *(KERNELS / "native").glob("*.hpp")]
    sources += [SOURCES / unit for unit in UNITS if unit.startswith("..")] + [Path(__file__)]
    name = digest(
        compiler, [*flags, *FORTRAN_FLAGS, str(fortran)], [path for path in sources if path.is_file()]
    )
    prefix = cache() / f"library-{name}"
    with open(prefix.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not prefix.exists():
            draft = Path(tempfile.mkdtemp(prefix=f"{prefix.name}.", dir=prefix.parent))
            try:
                _make(draft, prefix, compiler, flags, fortran, serial)
                draft.rename(prefix)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return Built(prefix, serial, fortran is not None)


def _serial_compiler(named: str | None) -> str:
    names = (named,) if named else (*filter(None, [os.environ.get("CXX")]), *PLAIN_COMPILERS)
    found = next((name for name in names if shutil.which(name)), None)
    if found is None:
        raise UsageError(f"no C++ compiler {' or '.join(names)} on PATH; load one, or name it: --mpicxx PATH")
    return found


def _fortran_compiler(named: str | None, cxx: str, serial: bool) -> str | None:
    """The Fortran compiler beside `cxx`; None if there is none that runs."""
    if named and not shutil.which(named):
        raise UsageError(f"no Fortran compiler {named} on PATH")
    beside = Path(shutil.which(cxx) or cxx).parent
    names = ("gfortran",) if serial else (str(beside / "mpifort"), str(beside / "mpif90"), "ftn", "gfortran")
    return next((name for name in ((named,) if named else names) if name and shutil.which(name)), None)


def _make(draft: Path, prefix: Path, cxx: str, flags: list[str], fortran: str | None, serial: bool) -> None:
    """Fill `draft`, which becomes `prefix`."""
    include, lib = draft / "include", draft / "lib"
    for folder in (include, lib / "pkgconfig", lib / "cmake" / "Fpna"):
        folder.mkdir(parents=True)
    for header in HEADERS:
        shutil.copy(SOURCES / header, include)
    with tempfile.TemporaryDirectory() as made:
        units = UNITS if serial else (*UNITS, *WITH_MPI)
        made_of = objects([cxx, *flags], [SOURCES / unit for unit in units], made, WHAT)
        exports = Path(made) / "exports"
        exports.write_text(EXPORTS)
        shared = ["-shared", "-fopenmp", f"-Wl,--version-script={exports}", "-Wl,-soname,libfpna.so"]
        compiled([cxx, *shared, "-o", str(lib / "libfpna.so"), *made_of], what=WHAT)
        compiled(["ar", "rcs", str(lib / "libfpna.a"), *made_of], what=WHAT)
        if fortran:
            command = [fortran, *FORTRAN_FLAGS, "-J", str(include), "-c", "-o", f"{made}/fortran.o"]
            compiled([*command, str(SOURCES / FORTRAN)], what=WHAT)
            compiled(["ar", "rcs", str(lib / "libfpna_fortran.a"), f"{made}/fortran.o"], what=WHAT)
    built = Built(prefix, serial, fortran is not None)
    (lib / "pkgconfig" / "fpna.pc").write_text(_pkgconfig(built))
    (lib / "cmake" / "Fpna" / "FpnaConfig.cmake").write_text(_cmake(built))
    (lib / "cmake" / "Fpna" / "FpnaConfigVersion.cmake").write_text(_cmake_version())


def _pkgconfig(built: Built) -> str:
    return "\n".join(
        [
            "prefix=${pcfiledir}/../..",
            "",
            "Name: fpna",
            "Description: sums whose bits do not depend on the order of the additions",
            f"Version: {__version__}",
            f"Cflags: -I${{prefix}}/include{f' {SERIAL}' if built.serial else ''}",
            "Libs: -L${prefix}/lib -Wl,-rpath,${prefix}/lib -lfpna",
            "Libs.private: -fopenmp -lstdc++ -lm",
            "",
        ]
    )


def _cmake(built: Built) -> str:
    serial = '  INTERFACE_COMPILE_DEFINITIONS "FPNA_SERIAL"\n' if built.serial else ""
    fortran = (
        "if(NOT TARGET Fpna::fortran)\n"
        "  add_library(Fpna::fortran INTERFACE IMPORTED)\n"
        "  set_target_properties(Fpna::fortran PROPERTIES\n"
        '    INTERFACE_INCLUDE_DIRECTORIES "${fpna_prefix}/include"\n'
        '    INTERFACE_LINK_LIBRARIES "${fpna_prefix}/lib/libfpna_fortran.a;Fpna::fpna")\n'
        "endif()\n"
        if built.fortran
        else ""
    )
    return (
        'get_filename_component(fpna_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)\n'
        "if(NOT TARGET Fpna::fpna)\n"
        "  add_library(Fpna::fpna SHARED IMPORTED)\n"
        "  set_target_properties(Fpna::fpna PROPERTIES\n"
        f"{serial}"
        '    INTERFACE_INCLUDE_DIRECTORIES "${fpna_prefix}/include"\n'
        '    IMPORTED_LOCATION "${fpna_prefix}/lib/libfpna.so")\n'
        "endif()\n"
        f"{fortran}"
    )


def _cmake_version() -> str:
    return (
        f'set(PACKAGE_VERSION "{__version__}")\n'
        "if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)\n"
        "  set(PACKAGE_VERSION_COMPATIBLE FALSE)\n"
        "else()\n"
        "  set(PACKAGE_VERSION_COMPATIBLE TRUE)\n"
        "  if(PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION)\n"
        "    set(PACKAGE_VERSION_EXACT TRUE)\n"
        "  endif()\n"
        "endif()\n"
    )
