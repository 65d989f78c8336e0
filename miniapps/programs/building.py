"""Compile the library that `fpna run` preloads, with the C++ compiler of the program's MPI; and what every library
that is compiled at its first use needs: a compiler, a name by its sources, a directory."""

from __future__ import annotations

import fcntl
import hashlib
import json
import mmap
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kernels
from miniapps.errors import UsageError
from miniapps.programs import functions, rawlog
from miniapps.programs.elf import defines
from miniapps.untrusted.regular import Refused, open_regular

SOURCES = Path(__file__).parent / "preload"
SHARED = Path(kernels.__file__).parent  # has library/reductions.hpp
UNITS = ("calls.cpp", "fortran.cpp", "counted.cpp")
STATIC_UNITS = ("calls.cpp", "counted.cpp")  # the Fortran functions of MPICH call those of C
# In a program that the recorder is linked into, before the version of its logs; as in preload/calls.cpp.
MARK = b"fpna run: the recorder of logs of version "
STATIC_MPI = (
    b"**mpi_init %p %p",
    b"mca_coll_base_comm_select(MPI_COMM_WORLD) failed",
)  # of MPICH and of Open MPI
COUNTED = "counted.inc"
FLAGS = (
    "-std=c++17", "-O2", "-fPIC", "-pthread", "-ffp-contract=off", "-DOMPI_SKIP_MPICXX",
    "-DMPICH_SKIP_MPICXX", "-Wno-maybe-uninitialized", "-Wno-uninitialized",
)  # fmt: skip
MOST = 240  # counters, as in preload/log.hpp
COMPILERS = ("mpicxx", "mpic++", "mpiCC", "CC")
BUILD_S = 300
MOST_BYTES = 2**34  # of a program, which is mapped


def build(mpicxx: str | None, static: bool = False) -> Path:
    """The library to preload, or with `static` the object to link before a static MPI library.

    Compiles it with `mpicxx` unless it is in the cache. Raises UsageError."""
    compiler = mpi_compiler(mpicxx)
    shared = [path for folder in ("include", "native", "library") for path in (SHARED / folder).glob("*.hpp")]
    sources = [*SOURCES.rglob("*.[chi]*"), Path(functions.__file__), *shared]
    flags = [*FLAGS, f"-DFPNA_STATIC={rawlog.VERSION}"] if static else [*FLAGS]
    units = [SOURCES / unit for unit in (STATIC_UNITS if static else UNITS)]
    link = ["ld", "-r"] if static else [compiler, "-shared", "-pthread"]
    made = cache() / f"observe-{digest(compiler, flags, sources)}{'.o' if static else '.so'}"
    with open(made.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the ranks of a node build it once
        if not made.exists():
            draft = made.with_suffix(f".{os.getpid()}")
            with tempfile.TemporaryDirectory() as written:
                header = _header(compiler)
                names = functions.counted_names(functions.declared(header))
                (Path(written) / COUNTED).write_text(definitions(names, header))
                command = [compiler, *flags, "-I", str(SHARED), "-I", written]
                made_of = objects(command, units, written)
                compiled([*link, "-o", str(draft), *made_of, *([] if static else ["-ldl"])])
            draft.rename(made)
    return made


def mpi_compiler(mpicxx: str | None) -> str:
    """The C++ compiler of an MPI: `mpicxx`, or the first on PATH. Raises UsageError."""
    compiler = mpicxx or next((name for name in COMPILERS if shutil.which(name)), None)
    if compiler is None or shutil.which(compiler) is None:
        raise UsageError(
            f"no MPI compiler {compiler or ' or '.join(COMPILERS)} on PATH; load the module of the MPI that the "
            "program uses, or name its compiler: --mpicxx PATH"
        )
    return compiler


def declared(compiler: str | Path) -> list[str]:
    """The functions that the mpi.h of this compiler declares. Raises UsageError."""
    return functions.declared(_header(compiler))


def _header(compiler: str | Path) -> str:
    return compiled([str(compiler), *FLAGS, "-E", "-x", "c++", "-"], "#include <mpi.h>\n")


def definitions(names: list[str], header: str) -> str:
    """The text of counted.inc for counted.cpp: these functions, if the preprocessed mpi.h `header` declares them.

    Large-count forms share the counter of the plain functions.
    """
    there, counted = (
        set(functions.declared(header)),
        {name for of in functions.COUNTED.values() for name in of},
    )
    calls_c = "ompi_" not in header  # Fortran functions call the recording C functions, except in Open MPI
    lines = [f"#define COUNTED_NAMES {json.dumps(json.dumps(names[:MOST]))}"]
    for number, name in enumerate(names[:MOST]):
        if not name.startswith("MPI_"):
            continue  # calls.cpp and requests.hpp count these
        lines += [f"COUNTED({number}, {own})" for own in (name, f"{name}{functions.LARGE}") if own in there]
        if name in counted or not calls_c:
            lines.append(f"COUNTED_IN_FORTRAN({number}, {name.lower()})")
    return "\n".join(lines) + "\n"


def compiled(command: list[str], source: str = "", what: str = "the library that records calls") -> str:
    """Runs the compiler and returns its output. Raises UsageError."""
    try:
        done = subprocess.run(command, input=source, capture_output=True, text=True, timeout=BUILD_S)
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{command[0]} did not finish {what} in {BUILD_S} s; try again") from error
    if done.returncode:
        raise UsageError(f"{command[0]} cannot build {what}:\n{done.stderr[-2000:]}")
    return done.stdout


def objects(
    command: list[str], sources: Iterable[Path], folder: str, what: str = "the library that records calls"
) -> list[str]:
    """The object files in `folder` that `command` compiles, as many at once as there are cores. Raises UsageError."""
    paths = {source: f"{folder}/{source.stem}.o" for source in sources}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(
            pool.map(lambda at: compiled([*command, "-c", "-o", at[1], str(at[0])], what=what), paths.items())
        )
    return list(paths.values())


def digest(compiler: str, flags: Iterable[str], sources: Iterable[Path]) -> str:
    """A hash of everything that a library depends on: the compiler, its wrapped command, the options, the sources."""
    shown = subprocess.run([compiler, "-show"], capture_output=True, text=True).stdout
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
    hashed = hashlib.blake2b(digest_size=12)
    for text in (shutil.which(compiler), shown, version, *flags):
        hashed.update(str(text).encode())
    for path in sorted(sources):
        hashed.update(path.read_bytes())
    return hashed.hexdigest()


def cache() -> Path:
    """A directory that only this user can write to, since programs load its files. Raises UsageError."""
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fpna"
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = os.lstat(place)
    except OSError as error:
        raise UsageError(
            f"{place}: {error.strerror}; set XDG_CACHE_HOME to a directory that you own"
        ) from error
    if status.st_uid != os.getuid() or status.st_mode & 0o022 or place.is_symlink():
        raise UsageError(f"{place}: others can write to it; run chmod 700 {place}, or set XDG_CACHE_HOME")
    return place


def has_recorder(program: str) -> bool:
    """Whether the recorder is linked into a program with a static MPI library, so that none is preloaded.

    Raises UsageError for a static MPI library without it, and for a recorder of another version."""
    path = _path_of(program)
    try:
        with (
            open_regular(path, MOST_BYTES, links=True) as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,
        ):
            if text[:4] != b"\x7fELF" or _mpi_of(path):
                return False
            mark = text.find(MARK)
            version = text[mark + len(MARK) : mark + len(MARK) + 20].partition(b"\n")[0] if mark >= 0 else b""
            static = (
                mark >= 0
                or defines(str(path), "PMPI_Init")
                or any(text.find(name) >= 0 for name in STATIC_MPI)
            )
    except (OSError, Refused, ValueError):  # a script, or a file that cannot be read
        return False
    if not static:
        return False
    remedy = (
        "link $(fpna config --recorder) behind the program's own objects and before MPI, as in mpicc -o app app.o "
        "$(fpna config --recorder), or link MPI as a shared library"
    )
    if mark < 0:
        raise UsageError(
            f"{program}: its MPI library is linked statically, so nothing can be preloaded: {remedy}"
        )
    if version != str(rawlog.VERSION).encode():
        raise UsageError(f"{program}: the recorder in it is of another version of fpna: {remedy}")
    return True


def _path_of(program: str) -> Path:
    path = shutil.which(program)
    if path is None:
        raise UsageError(f"no program {program!r}; a program in this directory is ./{Path(program).name}")
    return Path(path)


def require_same_mpi(program: str, library: Path) -> None:
    """Raise UsageError if the program and the library to preload were built for different MPI libraries."""
    theirs, ours = _mpi_of(_path_of(program)), _mpi_of(library)
    if theirs and ours and theirs.isdisjoint(ours):
        raise UsageError(
            f"{program} uses {', '.join(sorted(theirs))}, but the MPI of the compiler is {', '.join(sorted(ours))}: "
            "name the compiler of the program's MPI with --mpicxx"
        )


def _mpi_of(path: Path) -> set[str]:
    """The MPI libraries that a file needs, by name or path; empty if unknown, for instance for a script."""
    done = subprocess.run(["ldd", str(path)], capture_output=True, text=True)
    words = (line.split() for line in done.stdout.splitlines())
    return {
        str(Path(line[2]).resolve()) if len(line) > 2 and line[2].startswith("/") else line[0]
        for line in words
        if line and Path(line[0]).name.startswith(("libmpi.so", "libmpich.so", "libmpi_abi.so"))
    }
