"""`identify`: the ordering of a library's all-reduce, as a table and as JSON, compared with a forced one."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from kernels.allreduce.instruments import backends
from kernels.allreduce.instruments.bitwise import CALLS as TIMED_CALLS
from kernels.allreduce.instruments.bitwise import Timed, timed
from kernels.allreduce.instruments.candidates import candidates, short_name
from kernels.allreduce.instruments.dependence import Dependence, dependences
from kernels.allreduce.instruments.forced import forced
from kernels.allreduce.instruments.libraries import CALLS, Library, of_mpi
from kernels.allreduce.instruments.recognition import identify
from kernels.commands.certificates import changes, read_certificate, require_same_question, write_certificate
from kernels.commands.entry import command_line
from kernels.commands.findings import conclusion, dependence_table, report, time_table
from kernels.commands.options import add_loudness, add_version
from kernels.commands.parser import Number, Parser
from kernels.guarantees import ChoiceError, known

USAGE = "%(prog)s [options]"
DESCRIPTION = """\
example:
  mpirun -n 6 fpna identify --length 1 1000 --tree
  torchrun --nproc-per-node 4 -m fpna identify --backend gloo --depends --time --json site.json

Under mpirun: all-reduces random numbers by the MPI library and prints, for each length, which ordering has the same
bits, whether they repeat, and whether all ranks hold the same. If a variable forces an algorithm, prints whether it
ran. With --backend it asks torch.distributed instead, also under torchrun. Exit code 3 if bits do not repeat, differ
between ranks, or differ from the file of --against. --depends and --time never change the exit code."""
DTYPES = ("float64", "float32")
EXIT_BROKEN = 3
LENGTH = Number(0, 2**26)  # elements of a vector; every rank allocates many vectors


@command_line
def main(argv: list[str] | None = None, prog: str = "fpna identify") -> int:
    """`fpna identify`; returns the exit code."""
    top = parser(prog)
    try:
        args = top.parse_args(argv)
        return _run(args)
    except ChoiceError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2


def parser(prog: str = "fpna identify") -> argparse.ArgumentParser:
    """The arguments of `fpna identify`."""
    top = Parser(
        prog=prog, usage=USAGE, formatter_class=argparse.RawDescriptionHelpFormatter, description=DESCRIPTION
    )
    add_version(top)
    _add_arguments(top)
    return top


def register(commands) -> None:
    """Add the command `identify`."""
    _add_arguments(
        commands.add_parser(
            "identify",
            help="under mpirun: which ordering the MPI library's own all-reduce is, by its bits",
            usage=USAGE,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            description=DESCRIPTION,
        )
    )


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--length", type=LENGTH, nargs="+", metavar="N", help="%(type)s (default: 1, ranks, 1000, 100003)"
    )
    parser.add_argument(
        "--backend",
        metavar="NAME",
        help="torch.distributed's all-reduce over this backend (gloo, nccl, mpi, ucc) instead of MPI's; also under "
        "torchrun",
    )
    parser.add_argument(
        "--against",
        metavar="FILE",
        help="a file that --json wrote: compare, as after an update of a driver; exit code 3 if bits differ",
    )
    parser.add_argument("--dtype", default="float64", help=f"{' or '.join(DTYPES)} (default: %(default)s)")
    parser.add_argument("--call", default="blocking", help=f"{' or '.join(CALLS)} (default: %(default)s)")
    parser.add_argument(
        "--tree",
        action="store_true",
        help="show the discovered tree (default: only where no ordering has the bits)",
    )
    parser.add_argument(
        "--depends",
        action="store_true",
        help="add the same numbers again with one condition changed (in place, alignment, length, ranks, ...), and "
        "count the sums with other bits",
    )
    parser.add_argument(
        "--time",
        type=Number(1, 10**6),
        nargs="?",
        const=TIMED_CALLS,
        metavar="CALLS",
        help=f"also time so many calls on the same numbers, and count their results ({TIMED_CALLS} without a number)",
    )
    parser.add_argument("--json", metavar="FILE", help="also write all findings to this file")
    add_loudness(parser, "the table alone", "as --tree")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    try:
        known("dtype", args.dtype, DTYPES)
        known("call", args.call, CALLS)
        before = read_certificate(args.against) if args.against else None
        if args.backend:
            if args.call == "persistent":
                raise ChoiceError("identify: --call persistent is a call of MPI; leave it out with --backend")
            with backends.started(args.backend, comm) as library:
                return _measure(args, library, before)
        if comm.size == 1:
            raise ChoiceError(
                "identify: one rank adds nothing, so there is no order to identify; run it as "
                "`mpirun -n P fpna identify` with P of 2 or more"
            )
        return _measure(args, of_mpi(comm), before)
    except ChoiceError:
        if comm.rank == 0 and os.environ.get("RANK", "0") == "0":
            raise
        return 2


def _measure(args: argparse.Namespace, library: Library, before: dict | None) -> int:
    from kernels.allreduce.execution.placement import nodes_of

    comm = library.comm
    _require_writable(comm, args.json)
    if before:
        require_same_question(before, args, comm.size)
    nodes = nodes_of(comm)
    maker = next((each for each in ("MPICH", "Open MPI") if each in library.name), library.name)
    forces = [] if args.backend else forced(maker, args.call, os.environ)
    names = candidates(comm.size) if comm.rank == 0 else []
    lengths = sorted(set(args.length or (1, comm.size, 1000, 100003)))
    if comm.rank == 0 and not args.quiet:
        print(
            f"{library.name}: {args.call} all-reduce of {args.dtype}, {comm.size} ranks, nodes: {len(set(nodes))}"
        )
        for what in forces:
            means = f"means {short_name(what.ordering)}" if what.ordering else what.remark
            print(f"forced: {what.variable}={what.value} ({means})")
        print(flush=True)
    trees, context = args.tree or args.verbose, {"nodes": nodes}
    findings = [identify(library, n, args.dtype, args.call, names, trees, context) for n in lengths]
    found: list[Dependence] = []
    times: list[Timed] = []
    for n in lengths if args.depends else ():
        found += dependences(library, n, args.dtype, args.call)
    for n in filter(None, lengths if args.time else ()):
        times.append(timed(library, n, args.dtype, args.call, args.time))
    changed: list[str] = []
    if comm.rank == 0:
        print(report(findings, forces, nodes))
        print(
            "".join(f"\n{table}\n" for table in (dependence_table(found), time_table(times)) if table), end=""
        )
        print(conclusion(findings, nodes))
        if before:
            changed = changes(before, findings, found)
            print("\n".join(changed) or f"The bits are those of {args.against} ({before['library']}).")
        if args.json:
            write_certificate(args, library, forces, findings, found, times)
    sound = all(f.repeats and f.ranks_agree for f in findings) and not changed
    return comm.bcast(0 if sound else EXIT_BROKEN)


def _require_writable(comm: Any, file: str | None) -> None:
    """Raises ChoiceError on every rank if rank 0 cannot write `file`, before the measurement."""
    problem = None
    if file and comm.rank == 0:
        try:
            Path(file).touch()
        except OSError as error:
            problem = f"--json {file}: {error.strerror}"
    problem = comm.bcast(problem)
    if problem:
        raise ChoiceError(problem)
