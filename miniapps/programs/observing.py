"""`fpna run -- ./app`: run an unmodified MPI program and record its MPI calls by a preloaded library.

mpirun starts this launcher for every rank. It starts the program with the library preloaded, waits for it, and writes
the trace of its rank from the raw log. The library is compiled once for each MPI library (preload/).
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from kernels.commands.entry import command_line
from kernels.commands.options import add_loudness, add_version
from miniapps.errors import UsageError
from miniapps.programs import calltrace, completions, coverage, rawlog
from miniapps.programs.building import build, has_recorder, require_same_mpi
from miniapps.programs.command import name_of, require_runnable
from miniapps.programs.rawlog import DIRECTIONS
from miniapps.programs.sources import require_same_program, write_order
from miniapps.system import environment, kinds
from miniapps.system.place import directory
from miniapps.system.world import parsed
from miniapps.trace import TraceError
from miniapps.trace.reader import raw_logs
from miniapps.untrusted.arguments import Parser
from miniapps.untrusted.regular import Refused, open_regular
from miniapps.untrusted.text import printable, tell

FAILED, BAD_USAGE = 1, 2
REFUSED = Path("refused")  # sent by preload/world.hpp in place of the path of a log
SUMS = {"none": "", "run": "tree", "layout": "tree", "exact": "exact"}  # values of FPNA_SUMS by guarantee

DESCRIPTION = """\
Runs an unmodified MPI program in any language and records its MPI calls: their inputs, their outputs, their times and
their places in the program. `fpna divergence A B` then shows where two runs begin to differ: at a sum that the library
added in another order, at a message from any source, or in the program itself. It names the rank and the call.

With --guarantee, fpna instead of the MPI library adds sums of floats and doubles (MPI_SUM), in a fixed order or without
rounding. It cannot change the arithmetic inside a rank: a partial sum that a rank passes is rounded already.
"""
EPILOG = """\
examples:
  mpirun -n 4 fpna run --out runs/a -- ./app input.txt
  fpna divergence runs/a runs/b
  mpirun -n 4 fpna run --guarantee exact --out runs/c -- ./app input.txt
  mpirun -n 4 fpna run --replay runs/a --out runs/d -- ./app input.txt
"""


@command_line
def main(argv: list[str] | None = None, prog: str = "fpna run") -> int:
    """Run a program and record its MPI calls; returns its exit code, 2 if it was not started."""
    own = parser(prog)
    options = parsed(own, argv)
    launched = environment.launched()
    rank, size = (launched.rank, launched.size) if launched else (0, 1)
    # `fpna cpus` asks of the program's libraries, not of those of this process and of compilers.
    os.environ["FPNA_NOT_ASKED"] = "1"
    try:
        if options.recover:
            return recover(Path(options.recover))
        command = options.command[1:] if options.command[:1] == ["--"] else options.command
        if not command:
            raise UsageError(f"no program; give one after --: {prog} [options] -- ./app ARGUMENTS")
        require_runnable(command, prog)
        library = None if has_recorder(command[0]) else build(options.mpicxx)
        if library:
            require_same_mpi(command[0], library)
        remark = ""
        if options.replay:
            remark = require_same_program(Path(options.replay), command, options.same_but, size)
        elif options.patience is not None:
            raise UsageError("--patience is for a replay; give --replay RUN, too")
        if missing := [word for word in options.same_but if word not in command[1:]]:
            raise UsageError(
                f"--same-but {missing[0]}: the program has no such argument; its arguments are {command[1:]}"
            )
        if remark and rank == 0 and not options.quiet:
            tell(f"{prog}: {remark}", sys.stderr)
        with contextlib.ExitStack() as stack:
            try:
                env = _settings(options, command, rank, size, stack)
            except Exception as error:
                if size == 1:
                    raise
                # Other ranks will wait in MPI_Init, so this rank starts the program to end the job from there.
                tell(f"{prog}: {'' if rank == 0 else f'rank {rank}: '}{error}", sys.stderr)
                observe(command, library, {"FPNA_OBSERVE": "", "FPNA_OBSERVE_REFUSED": "1"})
                return BAD_USAGE
            return observe(command, library, env, options.verbose, options.quiet)
    except (UsageError, Refused, TraceError) as error:
        if environment.first_of_node():  # the others have the same error
            tell(f"{prog}: {'' if rank == 0 else f'rank {rank}: '}{error}", sys.stderr)
        else:
            time.sleep(1)  # the launcher may end the job when the first process ends
        return BAD_USAGE


def _settings(
    options: argparse.Namespace, command: list[str], rank: int, size: int, stack: contextlib.ExitStack
) -> dict[str, str]:
    """The environment variables for the preloaded library; rank 0 also creates the directory of the run."""
    env = {
        "FPNA_OBSERVE": "rank 0 says where",
        "FPNA_SUMS": SUMS[options.guarantee],
        "FPNA_SETTINGS": " ".join(environment.SETTINGS + environment.THREADS),
    }
    if options.quiet:
        env["FPNA_OBSERVE_QUIET"] = "1"
    if launched := environment.launched():
        env |= {
            "FPNA_LAUNCHER": launched.name,
            "FPNA_LAUNCHED": str(launched.size),
            "FPNA_LAUNCHED_RANK": str(launched.rank),
        }
    if options.replay:
        env["FPNA_REPLAY"], left_out = stack.enter_context(write_order(Path(options.replay), rank, size))
        if left_out and not options.quiet:
            tell(
                f"fpna run: rank {rank}: the order in which requests complete is not replayed: {left_out}",
                sys.stderr,
            )
        if options.patience is not None:
            env["FPNA_PATIENCE"] = str(options.patience)
    if options.point_to_point:
        env["FPNA_OBSERVE_P2P"] = "1"
    if options.disturb is not None:
        env["FPNA_DISTURB"] = str(options.disturb)
    if rank:
        return env
    now = datetime.now(UTC)
    run_id = f"{name_of(command)}-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    out = directory(Path(options.out or f"runs/{run_id}"))
    if not options.quiet:
        tell(f"fpna run: the calls of {command[0]} are recorded in {out}", sys.stderr)
    if options.guarantee == "layout" and not options.quiet:
        tell(
            "fpna run: layout: each rank passes a partial sum that it has added itself, so bits still change with the "
            "number of ranks; in Python, pass rows to fpna.wrap (docs/tutorials/own-programs.md)", sys.stderr,
        )  # fmt: skip
    text = {
        "command": command, "guarantee": options.guarantee, "replay": options.replay or "", "run_id": run_id,
        "started": now.isoformat(timespec="milliseconds"), "disturb": options.disturb,
        "same_but": options.same_but,
        "point_to_point": options.point_to_point,
    }  # fmt: skip
    return env | {"FPNA_OBSERVE": str(out.resolve()), "FPNA_OBSERVE_TEXT": json.dumps(text)}


def _seconds(word: str) -> float:
    """The value of --patience."""
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(word)) < 1e9:
            return seconds
    raise argparse.ArgumentTypeError(f"{word!r} is no time in seconds, such as 60")


def _disturbance(word: str) -> int | str:
    """The value of --disturb: a seed, or a direction of rounding."""
    if word in DIRECTIONS:
        return word
    try:
        return int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is neither a seed, such as 1, nor up or down") from None


def parser(prog: str = "fpna run") -> argparse.ArgumentParser:
    """The command line before the program."""
    own = Parser(
        prog=prog, usage=f"mpirun -n N {prog} [options] -- PROGRAM [ARGUMENTS]", description=DESCRIPTION, epilog=EPILOG,
        example=EPILOG.splitlines()[1].strip(), formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    own.add_argument("--out", metavar="DIR", help="new or empty directory for the run (runs/PROGRAM-TIME)")
    own.add_argument(
        "--guarantee", choices=tuple(SUMS), default="none",
        help="who adds MPI_SUM of floats and doubles, and how: none: the MPI library; run and layout: fpna, in a tree "
        "over the ranks, for any length; exact: fpna, rounded once",
    )  # fmt: skip
    own.add_argument(
        "--replay",
        metavar="RUN",
        help="receive messages from any source, and find requests and messages, in the order of this run",
    )
    own.add_argument(
        "--patience", type=_seconds, metavar="S",
        help="with --replay: wait S seconds for a recorded message or request; then say so, and run free (60)",
    )  # fmt: skip
    own.add_argument(
        "--same-but", action="append", default=[], metavar="ARG",
        help="an argument of the program that is no part of the problem, such as the name of an output file; commands "
        "compare runs that differ only in it (may be given several times)",
    )  # fmt: skip
    own.add_argument(
        "--point-to-point", action="store_true",
        help="record all sends and receives, not only receives from any source",
    )  # fmt: skip
    own.add_argument(
        "--disturb", type=_disturbance, metavar="SEED",
        help="for experiments: disturb the program's arithmetic and its contributions to sums by at most a unit in the "
        "last place, drawn from this seed; up or down: round all arithmetic in this direction (used by fpna cause)",
    )  # fmt: skip
    own.add_argument(
        "--mpicxx", metavar="PATH", help="the C++ compiler of the program's MPI (mpicxx on PATH)"
    )
    own.add_argument(
        "--recover",
        metavar="DIR",
        help="run no program: write the traces of a killed run from its raw logs in DIR",
    )
    add_version(own)
    add_loudness(own, "errors alone", "also the preloaded library and the number of calls of each rank")
    own.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return own


def observe(
    command: list[str], library: Path | None, env: dict[str, str], verbose: bool = False, quiet: bool = False
) -> int:
    """Run `command` with the library preloaded and write the trace of this rank; returns its exit code. `library` is
    None for a program that has the recorder itself.

    In MPI_Init the library learns the directory from rank 0, opens its log there, and sends the log's path by a pipe.
    Descriptors stay open in the program, since launchers pass theirs in this way.
    """
    reads, writes = os.pipe()
    os.set_inheritable(writes, True)
    env = os.environ | env | {"FPNA_OBSERVE_FD": str(writes)}
    env.pop("FPNA_NOT_ASKED", None)
    if library:
        env["LD_PRELOAD"] = " ".join(filter(None, (str(library), os.environ.get("LD_PRELOAD", ""))))
    try:
        process = subprocess.Popen(command, env=env, close_fds=False)
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be started: {error.strerror}") from error
    os.close(writes)
    with process, _passing_on(process):
        code = process.wait()
    code = code if code >= 0 else 128 - code
    path = _received(reads)
    if path == REFUSED:
        return code
    if path is None and "FPNA_OBSERVE_TEXT" in env:  # on rank 0, which prints for all
        why = (
            "it started a program whose MPI library is linked statically; give that program itself to fpna run"
            if library
            else "it calls MPI by Fortran's module mpi_f08; link MPI as a shared library"
        )
        tell(f"fpna run: {command[0]} recorded nothing: it did not call MPI_Init, or {why}", sys.stderr)
    elif path is not None:
        try:
            log, lacking = convert(path)
        except (OSError, Refused) as error:
            tell(f"fpna run: {_kept(path, error)}, then run: fpna run --recover {path.parent}", sys.stderr)
            return code or FAILED
        told = coverage.sentences(log, lacking) + ([kinds.sentence(log.kinds)] if log.kinds else [])
        for sentence in told if log.rank == 0 and not quiet else ():
            tell(f"fpna run: {sentence}", sys.stderr)
        if verbose:
            tell(
                f"fpna run: rank {log.rank} of {log.size}: {len(log.records):,} calls, by "
                f"{library or 'the recorder in the program'}",
                sys.stderr,
            )
    return code


def _received(reads: int) -> Path | None:
    """The path from the pipe; None if the library sent none."""
    os.set_blocking(reads, False)  # a process that the program left behind may hold the other end
    with contextlib.suppress(BlockingIOError):
        return Path(os.fsdecode(text)) if (text := os.read(reads, 2**16)) else None
    return None


def convert(path: Path) -> tuple[rawlog.RawLog, coverage.Unreached]:
    """Write the trace of a raw log beside it, and remove the log; returns the log and the sums that the guarantee did
    not reach. Raises OSError and Refused, and then keeps the log."""
    log = rawlog.read(path)
    completions.write(log, path.parent)
    lacking = calltrace.write(log, path.parent)
    path.unlink()
    path.with_suffix(".txt").unlink(missing_ok=True)
    return log, lacking


def recover(out: Path) -> int:
    """Write the traces of all raw logs that a killed run left in `out`; returns the exit code.

    Keeps a log if its trace cannot be written."""
    logs = raw_logs(out)
    if not logs:
        raise UsageError(
            f"--recover {printable(str(out))}: it has no raw-*.log, so there is nothing to recover"
        )
    kept = 0
    for path in logs:
        try:
            with _unused(path):
                log, _ = convert(path)
        except (OSError, Refused) as error:
            tell(f"fpna run: --recover: {_kept(path, error)}", sys.stderr)
            kept += 1
            continue
        if not log.here:
            tell(
                f"fpna run: --recover: {path}: a copy, so the trace names functions by their addresses; for their "
                "names, recover the run on the machine on which it ran",
                sys.stderr,
            )
    left = f"; {kept} logs are kept" if kept else ""
    tell(f"fpna run: {len(logs) - kept} traces written in {out}{left}", sys.stderr)
    return FAILED if kept else 0


def _kept(path: Path, error: OSError | Refused) -> str:
    """The message about a log whose trace could not be written."""
    if isinstance(error, Refused):
        return str(error)
    return f"{path}: its trace cannot be written: {error.strerror or error}; solve this problem"


@contextlib.contextmanager
def _unused(path: Path) -> Iterator[None]:
    """Locks a log for conversion. Raises Refused if its program still runs or another process converts it."""
    with open_regular(path, rawlog.MOST) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(
                f"{printable(str(path))}: its program still runs and writes to it; wait until it has ended"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield


@contextlib.contextmanager
def _passing_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Inside, SIGTERM and SIGINT go to the program."""
    before = {
        number: signal.signal(number, lambda number, frame: process.send_signal(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
