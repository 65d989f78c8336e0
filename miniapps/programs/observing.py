"""`fpna run -- ./app`: an unmodified MPI program, its calls observed by a library that is loaded before it.

Under mpirun every rank's process is this launcher. It starts the program with the library preloaded, waits for it, and
writes the trace of its rank from the raw log. The library is compiled once for each MPI (preload/).
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
from miniapps.programs import calltrace, coverage, rawlog
from miniapps.programs.building import build, require_same_mpi
from miniapps.programs.command import name_of, require_runnable
from miniapps.programs.rawlog import DIRECTIONS
from miniapps.programs.sources import require_same_program, write_sources
from miniapps.system import environment
from miniapps.system.place import directory
from miniapps.system.world import parsed
from miniapps.trace import TraceError
from miniapps.trace.reader import raw_logs
from miniapps.untrusted.arguments import Parser
from miniapps.untrusted.regular import Refused, open_regular
from miniapps.untrusted.text import printable, tell

FAILED, BAD_USAGE = 1, 2
REFUSED = Path("refused")  # what preload/world.hpp says in place of the path of a log
SUMS = {"none": "", "run": "tree", "layout": "tree", "exact": "exact"}  # of FPNA_SUMS

DESCRIPTION = """\
Runs an MPI program of any language as it is and records its calls of MPI: what went in, what came out, when, and from
where in the program. `fpna divergence A B` then says where two runs part: at a sum that the library added in another
order, at a message from any source, or in the program itself, on which rank and before which call.

--guarantee lets sums of floats and doubles (MPI_SUM) be added here, in an order that is fixed, or without rounding.
Bits that the program makes inside a rank stay its own: what ranks pass to a sum is already added.
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
    """Run one program under observation; returns its exit code, 2 where it was not started."""
    own = parser(prog)
    options = parsed(own, argv)
    launched = environment.launched()
    rank, size = (launched.rank, launched.size) if launched else (0, 1)
    try:
        if options.recover:
            return recover(Path(options.recover))
        command = options.command[1:] if options.command[:1] == ["--"] else options.command
        if not command:
            raise UsageError(f"no program: {prog} [options] -- ./app ARGUMENTS")
        require_runnable(command, prog)
        library = build(options.mpicxx)
        require_same_mpi(command[0], library)
        remark = ""
        if options.replay:
            remark = require_same_program(Path(options.replay), command, options.same_but, size)
        if missing := [word for word in options.same_but if word not in command[1:]]:
            raise UsageError(
                f"--same-but {missing[0]}: the program has no such argument; it has {command[1:]}"
            )
        if remark and rank == 0 and not options.quiet:
            tell(f"{prog}: {remark}", sys.stderr)
        with contextlib.ExitStack() as stack:
            try:
                env = _settings(options, command, rank, size, stack)
            except Exception as error:
                if size == 1:
                    raise
                # Other ranks are on their way into MPI_Init and would wait there: this one ends the job from within.
                tell(f"{prog}: {'' if rank == 0 else f'rank {rank}: '}{error}", sys.stderr)
                observe(command, library, {"FPNA_OBSERVE": "", "FPNA_OBSERVE_REFUSED": "1"})
                return BAD_USAGE
            return observe(command, library, env, options.verbose, options.quiet)
    except (UsageError, Refused, TraceError) as error:
        if environment.first_of_node():  # others find the same
            tell(f"{prog}: {'' if rank == 0 else f'rank {rank}: '}{error}", sys.stderr)
        else:
            time.sleep(1)  # the launcher may end the job when the first process ends
        return BAD_USAGE


def _settings(
    options: argparse.Namespace, command: list[str], rank: int, size: int, stack: contextlib.ExitStack
) -> dict[str, str]:
    """The environment variables that tell the library what to do; on rank 0 the directory is created."""
    env = {"FPNA_OBSERVE": "rank 0 says where", "FPNA_SUMS": SUMS[options.guarantee]}
    if launched := environment.launched():
        env |= {
            "FPNA_LAUNCHER": launched.name,
            "FPNA_LAUNCHED": str(launched.size),
            "FPNA_LAUNCHED_RANK": str(launched.rank),
        }
    if options.replay:
        env["FPNA_REPLAY"] = stack.enter_context(write_sources(Path(options.replay), rank, size))
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
            "fpna run: layout: what a program passes to a sum is each rank's own part, already added, so that bits "
            "still change with the number of ranks; fpna.wrap takes rows (docs/tutorials/own-programs.md)", sys.stderr,
        )  # fmt: skip
    text = {
        "command": command, "guarantee": options.guarantee, "replay": options.replay or "", "run_id": run_id,
        "started": now.isoformat(timespec="milliseconds"), "disturb": options.disturb,
        "same_but": options.same_but,
        "point_to_point": options.point_to_point,
    }  # fmt: skip
    return env | {"FPNA_OBSERVE": str(out.resolve()), "FPNA_OBSERVE_TEXT": json.dumps(text)}


def _disturbance(word: str) -> int | str:
    """A seed, or a direction of rounding."""
    if word in DIRECTIONS:
        return word
    try:
        return int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is neither a seed, such as 1, nor up or down") from None


def parser(prog: str = "fpna run") -> argparse.ArgumentParser:
    """The command line, up to the program's own."""
    own = Parser(
        prog=prog, usage=f"mpirun -n N {prog} [options] -- PROGRAM [ARGUMENTS]", description=DESCRIPTION, epilog=EPILOG,
        example=EPILOG.splitlines()[1].strip(), formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    own.add_argument("--out", metavar="DIR", help="directory of the run, new or empty (runs/PROGRAM-TIME)")
    own.add_argument(
        "--guarantee", choices=tuple(SUMS), default="none",
        help="how MPI_SUM of floats and doubles is added: none: by the library; run and layout: in a tree over the "
        "ranks, whatever the length; exact: rounded once",
    )  # fmt: skip
    own.add_argument("--replay", metavar="RUN", help="take messages from any source in the order of this run")
    own.add_argument(
        "--same-but", action="append", default=[], metavar="ARG",
        help="an argument of the program that is no part of the problem, such as the name of an output: runs that "
        "differ in it alone are compared (may be given several times)",
    )  # fmt: skip
    own.add_argument(
        "--point-to-point", action="store_true",
        help="record all sends and receives, not only those that take a message from any source",
    )  # fmt: skip
    own.add_argument(
        "--disturb", type=_disturbance, metavar="SEED",
        help="an experiment: disturb the program's arithmetic and what it gives to sums by at most a unit in the last "
        "place, drawn from this seed; up or down: round all of its arithmetic there (fpna cause makes such runs)",
    )  # fmt: skip
    own.add_argument(
        "--mpicxx", metavar="PATH", help="the C++ compiler of the program's MPI (mpicxx on PATH)"
    )
    own.add_argument(
        "--recover",
        metavar="DIR",
        help="run nothing: write the traces of a run whose processes were killed before they could",
    )
    add_version(own)
    add_loudness(
        own, "say nothing but what goes wrong", "say what was built, and how many calls each rank made"
    )
    own.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return own


def observe(
    command: list[str], library: Path, env: dict[str, str], verbose: bool = False, quiet: bool = False
) -> int:
    """Run `command` with the library preloaded and write the trace of this rank; its exit code.

    The library opens its log in rank 0's directory, which it learns in MPI_Init, and sends the log's path by a pipe.
    Descriptors stay open in the program: launchers pass their own that way.
    """
    reads, writes = os.pipe()
    os.set_inheritable(writes, True)
    env = os.environ | env | {"FPNA_OBSERVE_FD": str(writes)}
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
    if path is None and "FPNA_OBSERVE_TEXT" in env:  # of rank 0, which speaks for all
        tell(
            f"fpna run: {command[0]} recorded nothing: it did not call MPI_Init, or has MPI linked statically",
            sys.stderr,
        )
    elif path is not None:
        try:
            log, lacking = convert(path)
        except (OSError, Refused) as error:
            tell(f"fpna run: {_kept(path, error)}, then: fpna run --recover {path.parent}", sys.stderr)
            return code or FAILED
        for sentence in coverage.sentences(log, lacking) if log.rank == 0 and not quiet else ():
            tell(f"fpna run: {sentence}", sys.stderr)
        if verbose:
            tell(
                f"fpna run: rank {log.rank} of {log.size}: {len(log.records):,} calls, by {library}",
                sys.stderr,
            )
    return code


def _received(reads: int) -> Path | None:
    """The path that came by the pipe; None where there is none."""
    os.set_blocking(reads, False)  # a process that the program left behind may hold the other end
    with contextlib.suppress(BlockingIOError):
        return Path(os.fsdecode(text)) if (text := os.read(reads, 2**16)) else None
    return None


def convert(path: Path) -> tuple[rawlog.RawLog, coverage.Unreached]:
    """Write the trace of a raw log beside it, and remove the log; what it held, and which sums no guarantee reached.
    Raises OSError and Refused, and then the log is still there."""
    log = rawlog.read(path)
    lacking = calltrace.write(log, path.parent)
    path.unlink()
    path.with_suffix(".txt").unlink(missing_ok=True)
    return log, lacking


def recover(out: Path) -> int:
    """Write the traces of the raw logs that a killed run has left in `out`, each by itself; the exit code. A log of
    which none can be written is kept."""
    logs = raw_logs(out)
    if not logs:
        raise UsageError(
            f"--recover {printable(str(out))}: no raw-*.log in it, so there is nothing to recover"
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
                f"fpna run: --recover: {path}: a copy, so that no file that it names was looked at: functions are "
                "named by their addresses; recover a run where it ran for their names",
                sys.stderr,
            )
    left = f"; {kept} logs are kept" if kept else ""
    tell(f"fpna run: {len(logs) - kept} traces written in {out}{left}", sys.stderr)
    return FAILED if kept else 0


def _kept(path: Path, error: OSError | Refused) -> str:
    """What is to be said of a log of which no trace was written."""
    if isinstance(error, Refused):
        return str(error)
    return f"{path}: no trace can be written of it: {error.strerror or error}; mend that"


@contextlib.contextmanager
def _unused(path: Path) -> Iterator[None]:
    """While a log is converted: nobody else does, and its program has ended. Raises Refused."""
    with open_regular(path, rawlog.MOST) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(
                f"{printable(str(path))}: its program still runs and writes to it; wait until it has ended"
            ) from None
        except OSError:  # a file system that has no locks
            pass
        yield


@contextlib.contextmanager
def _passing_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Signals that would end this process go to the program."""
    before = {
        number: signal.signal(number, lambda number, frame: process.send_signal(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
