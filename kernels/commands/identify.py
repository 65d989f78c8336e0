"""`identify`: what the MPI library's all-reduce is, as a table and as JSON, and whether what is forced is what ran."""

from __future__ import annotations

import argparse
import json
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path

from kernels.allreduce.instruments.forced import Forced, forced
from kernels.allreduce.instruments.recognition import Finding, candidates, identify, short_name
from kernels.commands.options import add_loudness
from kernels.commands.parser import Number
from kernels.guarantees import ChoiceError, known

DTYPES = ("float64", "float32")
CALLS = ("blocking", "persistent")
WIDTH = 84  # of the last column, where it is wrapped
SHOWN = 6  # names of a class, and trees of a length, that are printed
EXIT_BROKEN = 3
LENGTH = Number(0, 2**26)  # elements of a vector, which every rank makes many of


def report(findings: Sequence[Finding], forces: Sequence[Forced], size: int) -> str:
    """The table, and under each length what else there is to say."""
    lines = [f"{'length':>10}  {'repeats':<8}{'ranks':<8}bits of"]
    for f in findings:
        if f.length == 0:
            lines.append(f"{0:>10}  {'-':<8}{'-':<8}nothing: there is nothing to add")
            continue
        repeats, agree = "yes" if f.repeats else "NO", "agree" if f.ranks_agree else "DIFFER"
        first, *rest = _class_text(f, size)
        lines.append(f"{f.length:>10}  {repeats:<8}{agree:<8}{first}")
        rest += [line for what in forces for line in _verdict(f, what, size)]
        for each in f.trees[:SHOWN]:
            where = _ranges_text(each.elements, f.length) + ("" if f.ranks_agree else ", rank 0")
            doubt = " (but random sums differ)" if "x[" in each.tree and not each.verified else ""
            rest.append(f"{where}: {each.tree}{doubt}")
        more = len(f.trees[SHOWN:]) + f.more_trees
        if more:
            rest.append(f"and {more} more orders, of other elements")
        lines += [f"{'':<28}{line}" for line in rest]
    return "\n".join(lines)


def _class_text(f: Finding, size: int) -> list[str]:
    if not f.repeats:
        return ["no ordering: the same numbers have other sums from call to call"]
    if not f.orderings:
        return ["no ordering of ours"]
    if not f.ranks_agree:
        return [f"no ordering: each rank adds in an order of its own, rank 0 in that of {f.orderings[0]}"]
    if size == 2:
        return ["any ordering: two ranks have only one sum"]
    more = len(f.orderings) - SHOWN
    text = " = ".join(f.orderings[:SHOWN]) + (f" and {more} more" if more > 0 else "")
    return textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _verdict(f: Finding, what: Forced, size: int) -> list[str]:
    if size == 2 or what.ordering is None:
        return []
    if f.as_forced(what):
        return [f"as forced: {short_name(what.ordering)}"]
    return [f"NOT AS FORCED, {short_name(what.ordering)}: the library ran something else without saying so"]


def _ranges_text(ranges: list[tuple[int, int]], n: int) -> str:
    if ranges == [(0, n - 1)]:
        return "all elements" if n > 1 else "element 0"
    texts = [f"{first} ... {last}" if first < last else str(first) for first, last in ranges]
    if len(texts) == 1 and ranges[0][0] == ranges[0][1]:
        return f"element {texts[0]}"
    return "elements " + ", ".join(texts[:3]) + (f", {len(texts) - 3} more ranges" if len(texts) > 3 else "")


def register(commands) -> None:
    """Add the command `identify`."""
    parser = commands.add_parser(
        "identify",
        help="under mpirun: which ordering the MPI library's own all-reduce is, by its bits",
        description="Under mpirun: all-reduces random numbers by the MPI library and tells which ordering has its "
        "bits, for each length; whether they repeat and all ranks hold the same; and whether an algorithm that a "
        "variable forces is the one that ran. Exit code 3 if bits do not repeat or differ between ranks.",
        epilog="example: mpirun -n 4 python -m kernels.allreduce identify --length 1 1000 --tree",
    )
    parser.add_argument(
        "--length", type=LENGTH, nargs="+", metavar="N", help="%(type)s (default: 1, ranks, 1000, 100003)"
    )
    parser.add_argument("--dtype", default="float64", help=f"{' or '.join(DTYPES)} (default: %(default)s)")
    parser.add_argument("--call", default="blocking", help=f"{' or '.join(CALLS)} (default: %(default)s)")
    parser.add_argument(
        "--tree",
        action="store_true",
        help="show the tree as discovered (else only where no ordering has the bits)",
    )
    parser.add_argument("--json", metavar="FILE", help="write everything there as well")
    add_loudness(parser, "the table alone", "as --tree")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    try:
        known("dtype", args.dtype, DTYPES)
        known("call", args.call, CALLS)
        if comm.size == 1:
            raise ChoiceError(
                "identify: one rank adds nothing, so there is no order to identify; run it as "
                "`mpirun -n P python -m kernels.allreduce identify` with P of 2 or more"
            )
        _require_writable(comm, args.json)
        return _measure(args, comm, MPI.Get_library_version())
    except ChoiceError:
        if comm.rank == 0:
            raise
        return 2


def _measure(args: argparse.Namespace, comm, version: str) -> int:
    from kernels.allreduce.execution.placement import nodes_of

    context = {"nodes": nodes_of(comm)}
    version = " ".join(version.split("\n")[0].rstrip("\0").split(",")[0].replace("Version:", "").split())
    library_name = "MPICH" if "MPICH" in version else "Open MPI" if "Open MPI" in version else version
    forces = forced(library_name, args.call, os.environ)
    names = candidates(comm.size) if comm.rank == 0 else []
    lengths = sorted(set(args.length or (1, comm.size, 1000, 100003)))
    if comm.rank == 0 and not args.quiet:
        nodes = len(set(context["nodes"]))
        print(f"{version}: {args.call} all-reduce of {args.dtype}, {comm.size} ranks, nodes: {nodes}")
        for what in forces:
            means = f"means {short_name(what.ordering)}" if what.ordering else what.remark
            print(f"forced: {what.variable}={what.value} ({means})")
        print(flush=True)
    findings = [
        identify(comm, n, args.dtype, args.call, names, args.tree or args.verbose, context) for n in lengths
    ]
    if comm.rank == 0:
        print(report(findings, forces, comm.size))
        if args.json:
            _write(args, comm.size, version, forces, findings)
    return comm.bcast(0 if all(f.repeats and f.ranks_agree for f in findings) else EXIT_BROKEN)


def _require_writable(comm, file: str | None) -> None:
    """ChoiceError on every rank where rank 0 cannot write: before the time is spent."""
    problem = None
    if file and comm.rank == 0:
        try:
            Path(file).touch()
        except OSError as error:
            problem = f"--json {file}: {error.strerror}"
    problem = comm.bcast(problem)
    if problem:
        raise ChoiceError(problem)


def _write(args, size: int, version: str, forces: Sequence[Forced], findings: Sequence[Finding]) -> None:
    content = {
        "library": version,
        "ranks": size,
        "dtype": args.dtype,
        "call": args.call,
        "forced": [vars(what) for what in forces],
        "lengths": [
            vars(f)
            | {"trees": [vars(tree) for tree in f.trees]}
            | {"as_forced": f.as_forced(forces[0]) if forces else None}
            for f in findings
        ],
    }
    Path(args.json).write_text(json.dumps(content, indent=1) + "\n")
