"""`fpna run -- ./app`: an unmodified MPI program, its calls observed by a library that is loaded before it.

Under mpirun every rank's process is this launcher, which starts the program with the library preloaded, waits for it,
and writes the trace of its rank from the raw log. The library is built once with the site's MPI compiler.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from miniapps.errors import UsageError
from miniapps.programs import calltrace, rawlog
from miniapps.received.regular import Refused
from miniapps.received.text import tell
from miniapps.runner import launch
from miniapps.system import environment
from miniapps.trace import TraceError

SOURCES = Path(__file__).parent / "preload"
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-Wno-maybe-uninitialized", "-Wno-uninitialized")
COMPILERS = ("mpicxx", "mpic++", "mpiCC", "CC")
BUILD_S = 300  # to compile the library
BAD_USAGE = 2


def main(argv: list[str] | None = None, prog: str = "fpna run") -> int:
    """Run one program under observation; returns its exit code, 2 where it was not started."""
    options = _parser(prog).parse_args(argv)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        _parser(prog).error("no program: fpna run [options] -- ./app ARGUMENTS")
    launched = environment.launched()
    rank = launched.rank if launched else 0
    try:
        library = build(options.mpicxx)
        require_same_mpi(command[0], library)
        out = Path(options.out or f"runs/{Path(command[0]).name}")
        if rank == 0:
            launch.directory(out)
        return observe(command, out.resolve(), library, options.point_to_point)
    except (UsageError, Refused, TraceError) as error:
        tell(f"{prog}: {'' if rank == 0 else f'rank {rank}: '}{error}", sys.stderr)
        return BAD_USAGE


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        usage=f"mpirun -n N {prog} [options] -- PROGRAM [ARGUMENTS]",
        description="Runs an MPI program of any language as it is, and records its calls of MPI: what went in, what came "
        "out, when, and from where in the program. `fpna divergence A B` then says where two runs part.",
        epilog=f"example: mpirun -n 4 {prog} --out runs/a -- ./app input.txt",
    )
    parser.add_argument("--out", metavar="DIR", help="directory of the run, new or empty (runs/PROGRAM)")
    parser.add_argument("--mpicxx", help="the C++ compiler of the program's MPI (the first of mpicxx, mpic++, CC found)")
    parser.add_argument("--point-to-point", action="store_true", help="record sends and receives too, not only those that "
                        "take a message from any source")  # fmt: skip
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def build(mpicxx: str | None) -> Path:
    """The library to preload, compiled by `mpicxx` unless that was done before. Raises UsageError."""
    compiler = mpicxx or next((name for name in COMPILERS if shutil.which(name)), None)
    if compiler is None or shutil.which(compiler) is None:
        raise UsageError(
            f"no MPI compiler {compiler or ' or '.join(COMPILERS)} on PATH; load the module of the MPI that the program "
            "uses, or name its compiler: --mpicxx PATH"
        )
    shown = subprocess.run([compiler, "-show"], capture_output=True, text=True)
    sources = sorted(path for path in SOURCES.rglob("*") if path.suffix in (".cpp", ".hpp", ".h"))
    digest = hashlib.blake2b(digest_size=12)
    for text in (shutil.which(compiler), shown.stdout, *FLAGS):
        digest.update(str(text).encode())
    for path in sources:
        digest.update(path.read_bytes())
    library = _cache() / f"observe-{digest.hexdigest()}.so"
    with open(library.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the ranks of a node build it once
        if not library.exists():
            draft = library.with_suffix(f".{os.getpid()}")
            command = [compiler, *FLAGS, "-o", str(draft), str(SOURCES / "observe.cpp"), "-ldl"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S)
            if done.returncode:
                raise UsageError(f"{compiler} cannot build the library that observes:\n{done.stderr[-2000:]}")
            draft.rename(library)
    return library


def _cache() -> Path:
    """A directory of this user's alone: what lies in it is loaded into programs."""
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fpna"
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = os.lstat(place)
    if status.st_uid != os.getuid() or status.st_mode & 0o022 or place.is_symlink():
        raise UsageError(f"{place} can be written by others, and is not used; chmod 700 it, or set XDG_CACHE_HOME")
    return place


def require_same_mpi(program: str, library: Path) -> None:
    """Raise UsageError where the program and the library to preload were built for two MPI libraries."""
    found = shutil.which(program)
    if found is None:
        raise UsageError(f"no program {program!r}; a program in this directory is ./{Path(program).name}")
    theirs, ours = _mpi_of(Path(found)), _mpi_of(library)
    if theirs and ours and theirs.isdisjoint(ours):
        raise UsageError(
            f"{program} uses {', '.join(sorted(theirs))}, and the compiler's MPI is {', '.join(sorted(ours))}: name the "
            "compiler of the program's MPI with --mpicxx"
        )


def _mpi_of(path: Path) -> set[str]:
    """The names of the MPI libraries that a file needs; empty where that cannot be told, as of a script."""
    done = subprocess.run(["ldd", str(path)], capture_output=True, text=True)
    names = (line.split()[0] for line in done.stdout.splitlines() if line.strip())
    return {Path(name).name for name in names if Path(name).name.startswith(("libmpi.so", "libmpich.so", "libmpi_abi"))}


def observe(command: list[str], out: Path, library: Path, point_to_point: bool) -> int:
    """Run `command` with the library preloaded and write the trace of this rank; its exit code."""
    env = os.environ | {"FPNA_OBSERVE": f"{out}/"}
    env["LD_PRELOAD"] = " ".join(filter(None, (str(library), os.environ.get("LD_PRELOAD", ""))))
    if point_to_point:
        env["FPNA_OBSERVE_P2P"] = "1"
    with subprocess.Popen(command, env=env) as process:
        with _passing_on(process):
            code = process.wait()
    launched = environment.launched()
    log = out / f"raw-{launched.rank if launched else 0:05d}.log"
    if not log.exists():
        tell(f"fpna run: {command[0]} recorded nothing: it did not call MPI_Init, or is linked statically", sys.stderr)
        return code
    calltrace.write(rawlog.read(log), out, command)
    log.unlink()
    log.with_suffix(".txt").unlink()
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _passing_on(process: subprocess.Popen):
    """Signals that would end this process go to the program."""
    before = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, lambda n, frame: process.send_signal(n))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
