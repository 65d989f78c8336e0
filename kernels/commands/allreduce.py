"""`python -m kernels.allreduce`: orderings, accumulations and wires, their guarantees, and what the schedules do."""

from __future__ import annotations

import argparse
import importlib
import sys
import textwrap

from kernels.allreduce.accumulate import ACCUMULATIONS
from kernels.allreduce.catalog import orderings
from kernels.allreduce.ordering import Ordering
from kernels.as_json import Document, document, rows
from kernels.commands import cost, draw, pack, properties, tree
from kernels.commands.entry import command_line
from kernels.commands.options import add_json, add_loudness, add_version
from kernels.commands.parser import Parser
from kernels.guarantees import ChoiceError
from kernels.wires import LOSSY, SUMMARIES

# Commands whose modules load MPI, imported only when called: {name: (module, help)}.
UNDER_MPI: dict[str, tuple[str, str]] = {
    "identify": (
        "kernels.commands.identify",
        "under mpirun: which ordering the MPI library's own all-reduce is, by its bits",
    ),
    "links": (
        "kernels.commands.links",
        "under mpirun: rates between every two nodes or ranks, and spanning trees packed into them",
    ),
}

DOCUMENTS = {
    "kernels allreduce list": Document(
        rows=(
            rows(
                "orderings",
                "the orderings of an all-reduce",
                """
            name guarantee summary why | text
            parameters | object | with their defaults
            needs | list of text
            scheduled | boolean | it has a schedule, which `tree`, `cost` and `draw` show
            short | boolean
            """,
            ),
            rows(
                "accumulations",
                "the formats of partial sums",
                """
            name summary | text
            guarantee | text?
            taken | list of text | dtypes
            """,
            ),
            rows("wires", "how messages are encoded", "name summary | text"),
        )
    ),
}


def table(quiet: bool = False, verbose: bool = False) -> str:
    """The list of orderings, accumulations and wires as text: name, guarantee, summary; for orderings also the reason
    and the parameters. `quiet`: names and guarantees alone; `verbose`: also what a schedule depends on."""
    width = max(20, *(len(o.name) + 2 for o in orderings()))
    lines = [f"{'ordering':<{width}}{'guarantee':<11}{'' if quiet else 'what it does'}".rstrip()]
    for o in orderings():
        text = textwrap.wrap(o.summary, 79) + textwrap.wrap(f"Why: {o.why}.", 79)
        if o.parameters:
            parameters = (f"{key}={value} ({o.allowed(key)})" for key, value in o.parameters.items())
            text += textwrap.wrap(f"Parameters: {', '.join(parameters)}.", 79)
        if verbose:
            known = [
                *([] if o.scheduled else ["no schedule"]),
                *([] if not o.short else ["another if short"]),
            ]
            text += [f"Depends on: {', '.join((*o.needs, *known)) or 'ranks alone'}."]
        if quiet:
            text = [""]
        lines.append(f"{o.name:<{width}}{o.guarantee:<11}{text[0]}".rstrip())
        lines += [f"{'':<{width + 11}}{more}" for more in text[1:]]
    what = "" if quiet else "type of partial sums, for any ordering with a schedule"
    lines.append(f"{'accumulation':<{width}}{'guarantee':<11}{what}".rstrip())
    lines += [
        f"{name:<{width}}{a.guarantee or '':<11}{'' if quiet else a.summary}".rstrip()
        for name, a in ACCUMULATIONS.items()
    ]
    encoded = {"wire": "encoding of messages, for any ordering with a schedule"} | SUMMARIES | LOSSY
    lines += [name if quiet else f"{name:<{width + 11}}{text}" for name, text in encoded.items()]
    return "\n".join(lines)


def entry(o: Ordering) -> dict:
    """The row of an ordering in the JSON document."""
    return {
        "name": o.name,
        "guarantee": o.guarantee,
        "summary": o.summary,
        "why": o.why,
        "parameters": o.parameters,
        "needs": list(o.needs),
        "scheduled": o.scheduled,
        "short": o.short is not None,
    }


def entries() -> dict:
    """The lists of the JSON document: orderings, accumulations and wires."""
    held = [{"name": name} | vars(kind) for name, kind in ACCUMULATIONS.items()]
    wires = [{"name": name, "summary": summary} for name, summary in (SUMMARIES | LOSSY).items()]
    return {"orderings": [entry(o) for o in orderings()], "accumulations": held, "wires": wires}


def _list(args: argparse.Namespace) -> int:
    print(
        document(1, "kernels allreduce list", **entries()) if args.json else table(args.quiet, args.verbose)
    )
    return 0


def parser(command: str | None, prog: str = "python -m kernels.allreduce") -> argparse.ArgumentParser:
    """The parser of all commands. A command that needs MPI gets its arguments only if it is `command`."""
    top = Parser(prog=prog, description=__doc__)
    add_version(top)
    top.set_defaults(run=_list, json=False, quiet=False, verbose=False)
    commands = top.add_subparsers(metavar="COMMAND")
    shown = commands.add_parser(
        "list",
        help="all orderings, accumulations and wires, with their guarantees and the reasons (default)",
        epilog="example: python -m kernels.allreduce list --json",
    )
    add_json(shown)
    add_loudness(shown, "names and guarantees alone", "also what each schedule depends on")
    for module in (tree, cost, draw, properties, pack):
        module.register(commands)
    for name, (of_mpi, what) in UNDER_MPI.items():
        if name == command:
            importlib.import_module(of_mpi).register(commands)
        else:
            commands.add_parser(name, help=what)
    return top


@command_line
def main(argv: list[str] | None = None, prog: str = "python -m kernels.allreduce") -> int:
    """Runs one command; returns the exit code. `prog`: the words that the user typed before the command."""
    argv = sys.argv[1:] if argv is None else argv
    command = argv[0] if argv else None
    top = parser(command, prog)
    try:
        args = top.parse_args(argv)
    except ChoiceError as error:
        if _speaks(command):
            print(f"{top.prog}: {error}", file=sys.stderr)
        return 2
    try:
        return args.run(args)
    except ChoiceError as error:
        print(f"{top.prog}: {error}", file=sys.stderr)
        return 2


def _speaks(command: str | None) -> bool:
    """Whether this process prints the error: under MPI every rank finds it and rank 0 alone prints."""
    if command not in (*UNDER_MPI, "properties"):
        return True
    from mpi4py import MPI

    return MPI.COMM_WORLD.rank == 0
