"""`identify`: the ordering of the MPI library's all-reduce, as a table and as JSON, compared with a forced one."""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from kernels.allreduce.instruments import backends
from kernels.allreduce.instruments.candidates import OverNodes, candidates, members, short_name
from kernels.allreduce.instruments.forced import Forced, forced
from kernels.allreduce.instruments.recognition import Finding, Opens, identify
from kernels.allreduce.links import digest_of, read_json
from kernels.commands.entry import command_line
from kernels.commands.options import add_loudness, add_version
from kernels.commands.parser import Number, Parser
from kernels.guarantees import ChoiceError, known

USAGE = "%(prog)s [options]"
DESCRIPTION = """\
example:
  mpirun -n 6 fpna identify --length 1 1000 --tree

Under mpirun: all-reduces random numbers by the MPI library and prints, for each length, which ordering has the same
bits, whether they repeat, and whether all ranks hold the same. If a variable forces an algorithm, prints whether it
ran. With --backend it asks torch.distributed instead, also under torchrun. Exit code 3 if bits do not repeat, differ
between ranks, or differ from the file of --against."""
DTYPES = ("float64", "float32")
CALLS = ("blocking", "persistent")
WIDTH = 84  # of the last column, in characters
SHOWN = 6  # printed trees of a length, and printed pairs of orderings inside and across nodes
EXIT_BROKEN = 3
SCHEMA = 1
LENGTH = Number(0, 2**26)  # elements of a vector; every rank allocates many vectors


def report(findings: Sequence[Finding], forces: Sequence[Forced], nodes: Sequence[int]) -> str:
    """The table of findings, with further lines under each length. `nodes`: the node of each rank."""
    lines = [f"{'length':>10}  {'repeats':<8}{'ranks':<8}bits of"]
    listed: dict[tuple[str, ...], int] = {}  # the length at which a list of orderings was printed
    for f in findings:
        if f.length == 0:
            lines.append(f"{0:>10}  {'-':<8}{'-':<8}nothing: there is nothing to add")
            continue
        repeats, agree = "yes" if f.repeats else "NO", "agree" if f.ranks_agree else "DIFFER"
        first, *rest = names = _class_text(f, nodes)
        if rest and listed.setdefault(tuple(names), f.length) != f.length:
            first, rest = f"as length {listed[tuple(names)]}", []
        lines.append(f"{f.length:>10}  {repeats:<8}{agree:<8}{first}")
        rest += [line for what in forces for line in _verdict(f, what, len(nodes))]
        for each in f.trees[:SHOWN]:
            where = _ranges_text(each.elements, f.length) + ("" if f.ranks_agree else ", rank 0")
            doubt = " (but random sums differ)" if "x[" in each.tree and not each.verified else ""
            texts = [] if f.recognised else _texts(each.orderings, each.over_nodes, nodes)
            rest += [line for text in texts for line in _wrapped(f"{where}: {text}")]
            rest.append(f"{where}: {each.tree}{doubt}")
        more = len(f.trees[SHOWN:]) + f.more_trees
        if more:
            rest.append(f"and {more} more orders, of other elements")
        lines += [f"{'':<28}{line}" for line in rest]
    return "\n".join(lines)


def conclusion(findings: Sequence[Finding], nodes: Sequence[int]) -> str:
    """A sentence that sums up the table, with advice how to learn more."""
    nonempty = [f for f in findings if f.length]
    if not nonempty:
        return "Nothing was added, so nothing is known of the order: give a --length above 0."
    if not all(f.repeats for f in nonempty):
        return "The library adds in no fixed order: the sums of the same numbers differ from call to call."
    if not all(f.ranks_agree for f in nonempty):
        return "Each rank of the library adds in another order: ranks hold different bits."
    if len(nodes) == 2:
        return "The library's bits repeat; two ranks have only one possible sum: start 5 or 6 to learn the order."
    parts = []
    for name, lengths in named(nonempty).items():
        span = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
        plural = "" if lengths == [1] else "s"
        parts.append(f"{name or 'an order without a name here (--tree shows it)'} for {span} element{plural}")
    text = f"The library adds in a fixed order on {len(nodes)} ranks: {', '.join(parts)}."
    alike = max(len(f.orderings) for f in nonempty)
    more = " Start 5 or 6 ranks to distinguish more of them." if len(nodes) < 5 else ""
    return text + (
        f" Up to {alike} orderings have these bits here, and the first is named.{more}" if alike > 1 else ""
    )


def named(findings: Sequence[Finding]) -> dict[str, list[int]]:
    """{ordering: lengths}: for each length, the ordering that has its bits. Of several, the one that has the bits of
    the most lengths. The name is empty for an unknown order."""
    orderings = {
        f.length: f.orderings or ["inside and across nodes" if f.over_nodes else ""]
        for f in findings
        if f.length
    }
    names: dict[str, list[int]] = {}
    for length, alike in orderings.items():
        most = max(alike, key=lambda name: sum(name in others for others in orderings.values()))
        names.setdefault(most, []).append(length)
    return names


def _class_text(f: Finding, nodes: Sequence[int]) -> list[str]:
    if not f.repeats:
        return ["no ordering: the sums of the same numbers differ from call to call"]
    if not f.recognised:
        parts = (
            len(f.trees) > 1 and not f.more_trees and all(one.orderings or one.over_nodes for one in f.trees)
        )
        return ["one ordering for some elements, another for others"] if parts else ["no known ordering"]
    texts = _texts(f.orderings, f.over_nodes, nodes)
    if not f.ranks_agree:
        return _wrapped(f"no ordering: each rank adds in another order, rank 0 in that of {texts[0]}")
    if len(nodes) == 2:
        return ["any ordering: two ranks have only one possible sum"]
    return [line for i, text in enumerate(texts) for line in _wrapped(f"{'or ' if i else ''}{text}")]


def _texts(orderings: Sequence[str], over_nodes: Sequence[OverNodes], nodes: Sequence[int]) -> list[str]:
    """A line for all matching orderings, then one for each pair of orderings inside and across nodes."""
    texts = [_same(orderings)] if orderings else []
    texts += [_over_nodes_text(both, nodes) for both in over_nodes[:SHOWN]]
    if more := len(over_nodes[SHOWN:]):
        texts.append(f"{more} more pairs of orderings inside and across nodes")
    return texts


def _same(names: Sequence[str]) -> str:
    return " = ".join(names)


def _over_nodes_text(both: OverNodes, nodes: Sequence[int]) -> str:
    groups = members(nodes)
    inside, across = (
        "any ordering" if ranks <= 2 else _same(names)
        for ranks, names in ((max(map(len, groups)), both.inside), (len(groups), both.across))
    )
    return f"inside nodes {inside}; across nodes {across}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _verdict(f: Finding, what: Forced, size: int) -> list[str]:
    if size == 2 or what.ordering is None:
        return []
    if f.as_forced(what):
        return [f"as forced: {short_name(what.ordering)}"]
    if f.across_as_forced(what):
        return [f"as forced across nodes: {short_name(what.ordering)}"]
    return [f"NOT AS FORCED, {short_name(what.ordering)}: the library ran something else without saying so"]


def _ranges_text(ranges: list[tuple[int, int]], n: int) -> str:
    if ranges == [(0, n - 1)]:
        return "all elements" if n > 1 else "element 0"
    texts = [f"{first} ... {last}" if first < last else str(first) for first, last in ranges]
    if len(texts) == 1 and ranges[0][0] == ranges[0][1]:
        return f"element {texts[0]}"
    return "elements " + ", ".join(texts[:3]) + (f", {len(texts) - 3} more ranges" if len(texts) > 3 else "")


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
            if args.call != "blocking":
                raise ChoiceError("identify: --call persistent is a call of MPI; leave it out with --backend")
            with backends.started(args.backend, comm) as (ranks, opens, version):
                return _measure(args, ranks, version, before, opens)
        if comm.size == 1:
            raise ChoiceError(
                "identify: one rank adds nothing, so there is no order to identify; run it as "
                "`mpirun -n P fpna identify` with P of 2 or more"
            )
        return _measure(args, comm, MPI.Get_library_version(), before, None)
    except ChoiceError:
        if comm.rank == 0 and os.environ.get("RANK", "0") == "0":
            raise
        return 2


def _measure(args: argparse.Namespace, comm, version: str, before: dict | None, opens: Opens | None) -> int:
    from kernels.allreduce.execution.placement import nodes_of

    _require_writable(comm, args.json)
    if before:
        require_same_question(before, args, comm.size)
    context = {"nodes": nodes_of(comm)}
    if not opens:
        version = " ".join(version.split("\n")[0].rstrip("\0").split(",")[0].replace("Version:", "").split())
    library_name = "MPICH" if "MPICH" in version else "Open MPI" if "Open MPI" in version else version
    forces = [] if opens else forced(library_name, args.call, os.environ)
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
        identify(comm, n, args.dtype, args.call, names, args.tree or args.verbose, context, opens)
        for n in lengths
    ]
    changed: list[str] = []
    if comm.rank == 0:
        print(report(findings, forces, context["nodes"]))
        print(conclusion(findings, context["nodes"]))
        if before:
            changed = changes(before, findings)
            print("\n".join(changed) or f"The bits are those of {args.against} ({before['library']}).")
        if args.json:
            _write(args, comm.size, version, forces, findings)
    sound = all(f.repeats and f.ranks_agree for f in findings) and not changed
    return comm.bcast(0 if sound else EXIT_BROKEN)


def _require_writable(comm, file: str | None) -> None:
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


def _write(args, size: int, version: str, forces: Sequence[Forced], findings: Sequence[Finding]) -> None:
    content = {
        "schema": SCHEMA,
        "library": version,
        "backend": args.backend or "mpi library",
        "ranks": size,
        "dtype": args.dtype,
        "call": args.call,
        "forced": [vars(what) for what in forces],
        "lengths": [asdict(f) | {"as_forced": f.as_forced(forces[0]) if forces else None} for f in findings],
    }
    Path(args.json).write_text(json.dumps(content | {"seal": digest_of(content)}, indent=1) + "\n")


def read_certificate(path: str) -> dict:
    """What `--json` wrote. Raises ChoiceError for a file that is none, or was changed."""
    content = read_json(path, "identify --json")
    if not isinstance(content, dict) or content.get("schema") != SCHEMA or "seal" not in content:
        raise ChoiceError(
            f"identify: --against {path}: no certificate of this version; write one by identify --json"
        )
    if content.pop("seal") != digest_of(content):  # shows damage, not forgery
        raise ChoiceError(
            f"identify: --against {path}: was changed after identify wrote it; take an unchanged copy"
        )
    return content


def require_same_question(before: dict, args: argparse.Namespace, size: int) -> None:
    """Raise ChoiceError where a certificate is of other ranks, types or calls."""
    now = {"ranks": size, "dtype": args.dtype, "call": args.call, "backend": args.backend or "mpi library"}
    for key, value in now.items():
        if before.get(key) != value:
            raise ChoiceError(
                f"identify: --against: its {key} is {before.get(key)}, here {value}; compare equal ones"
            )


def changes(before: dict, findings: Sequence[Finding]) -> list[str]:
    """A sentence for each length whose bits are not those of a certificate; for lengths of which it says nothing."""
    known_lengths = {each["length"]: each for each in before["lengths"]}
    lines = []
    for f in findings:
        old = known_lengths.get(f.length)
        if f.length and old is None:
            lines.append(
                f"length {f.length}: not in the certificate; measure it there with --length {f.length}"
            )
        elif old and (old["digest"], old["repeats"], old["ranks_agree"]) != (
            f.digest,
            f.repeats,
            f.ranks_agree,
        ):
            was, now = (
                ", ".join(names[:3]) or "no ordering of ours" for names in (old["orderings"], f.orderings)
            )
            lines.append(
                f"length {f.length}: OTHER BITS than with {before['library']}: {was} then, {now} now"
            )
    return lines
