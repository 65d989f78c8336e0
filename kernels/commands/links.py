"""`links`: measures rates between every two nodes or ranks under mpirun, and packs spanning trees into the links."""

from __future__ import annotations

import argparse
import sys
import traceback

from kernels.allreduce import links as files
from kernels.allreduce.instruments.pack import pack
from kernels.commands.options import add_json, add_loudness
from kernels.commands.pack import add_packing, as_document, summary, table
from kernels.commands.parser import Number
from kernels.guarantees import ChoiceError, known

REPEATS = Number(1, 1000)


def register(commands) -> None:
    """Adds the command `links`."""
    parser = commands.add_parser(
        "links",
        help="under mpirun: rates between every two nodes or ranks, and spanning trees packed into them",
        description="Under mpirun: measures rate and latency between every two nodes, in both directions at once, one "
        "pair after the other, and the rate of every node's port; then packs spanning trees into the links. Takes "
        "about 1 s for each pair, more where links are slow. Needs SciPy on rank 0.",
        epilog="example: mpirun -n 8 python -m kernels.allreduce links --write links.json",
    )
    parser.add_argument("--of", help="nodes or ranks (default: nodes, where there are several)")
    parser.add_argument(
        "--repeats",
        type=REPEATS,
        default=5,
        help="repeats of each measurement; the best counts (default: %(default)s)",
    )
    add_packing(parser)
    add_json(parser)
    add_loudness(parser, "the rate alone, no progress", "also latencies and all trees")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from mpi4py import MPI

    from kernels.allreduce.execution.planning import nodes_of
    from kernels.allreduce.instruments import rates

    comm = MPI.COMM_WORLD
    try:
        several = len(set(nodes_of(comm))) > 1
        of = known("--of", args.of, rates.OF) if args.of else ("nodes" if several else "ranks")
        if comm.size == 1 or (of == "nodes" and not several):
            raise ChoiceError(
                f"links: the number of {of} is one, so there is no link; launch more by mpirun -n"
            )
        _require(comm, args.write)
    except ChoiceError:
        if comm.rank:
            return 2
        raise  # one message is enough
    try:
        found = rates.measure(comm, of, args.repeats, quiet=args.quiet)
        if comm.rank == 0:
            _report(args, pack(found, args.slack))
        return comm.bcast(0, 0)
    except BaseException:  # the other ranks would wait for this one
        traceback.print_exc()
        sys.stderr.flush()
        comm.Abort(1)
        raise


def _require(comm, file: str | None) -> None:
    """Raises ChoiceError on every rank if rank 0 has no SciPy or cannot write `file`, before the measurement."""
    problem = None
    if comm.rank == 0:
        try:
            pack(files.Links(((0.0, 1.0), (1.0, 0.0))))
            if file:
                files.require_writable(file)
        except ChoiceError as error:
            problem = str(error)
    problem = comm.bcast(problem, 0)
    if problem:
        raise ChoiceError(problem)


def _report(args: argparse.Namespace, linked: files.Linked) -> None:
    if args.write:
        files.write(args.write, linked)
    if args.json:
        print(as_document("links", linked), flush=True)
        return
    if not args.quiet:
        print(table(linked.links))
        if args.verbose:
            for u, row in enumerate(linked.links.latencies):
                texts = ", ".join(f"{1e6 * seconds:.0f}" for seconds in row)
                print(f"latencies from {u}, us: {texts}")
        print()
    print(summary(linked, args.quiet, args.verbose), flush=True)
