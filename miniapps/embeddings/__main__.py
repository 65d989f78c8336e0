"""Times steps of random tables of embeddings on these ranks, for `python -m analysis sharding`.

mpirun -n 2 python -m miniapps.embeddings lookups.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from kernels.commands.entry import command_line
from kernels.commands.options import add_version
from kernels.progress import Progress
from miniapps.errors import UsageError
from miniapps.system.environment import cpu_model
from miniapps.system.world import parsed, speaks, world
from miniapps.untrusted.arguments import Parser
from miniapps.untrusted.text import tell

PROG = "python -m miniapps.embeddings"
ORDERS = ("sorted", "exact")
MIXED = 5  # mixed strategies of a problem, beside the uniform ones


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line; `prog` is the text that the user typed before the options."""
    parser = Parser(
        prog=prog,
        example=f"mpirun -n 2 {prog} times.json",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_version(parser)
    parser.add_argument("out", type=Path, metavar="FILE", help="JSON file to write")
    parser.add_argument(
        "--problems",
        type=_count,
        default=30,
        metavar="N",
        help="number of random sets of tables (%(default)s)",
    )
    parser.add_argument(
        "--rounds", type=_count, default=6, metavar="N", help="rounds over all strategies (%(default)s)"
    )
    parser.add_argument("--order", choices=ORDERS, default="sorted", help="order of sums (%(default)s)")
    parser.add_argument(
        "--seed", type=_count, default=1, metavar="N", help="seed of the tables (%(default)s)"
    )
    return parser


@command_line
def main(argv: list[str] | None = None, prog: str = PROG) -> int:
    """Measure, and write the file on rank 0; returns the exit code, the same on all ranks."""
    options = parsed(parser(prog), argv)
    try:
        comm = world()
        problem = None
        if comm.rank == 0:
            problem = _unwritable(options.out)
        if problem := comm.bcast(problem):
            raise UsageError(problem)
    except UsageError as error:
        if speaks():
            tell(f"embeddings: {error}", sys.stderr)
        return 2
    found = measured(comm, options)
    code = 0
    if comm.rank == 0:
        try:
            options.out.write_text(json.dumps(found))
            steps = sum(len(of["steps"]) for of in found["problems"])
            tell(f"{steps} steps on {comm.size} ranks: {options.out}")
        except OSError as error:
            tell(
                f"embeddings: {options.out}: cannot be written: {error.strerror}; name another file",
                sys.stderr,
            )
            code = 1
    return comm.bcast(code)


def measured(comm, options: argparse.Namespace) -> dict[str, Any]:
    """The content of the file; see `miniapps.untrusted.lookups.Measured`. Collective."""
    from miniapps.embeddings import steps

    rng, problems = np.random.default_rng(options.seed), []
    progress = Progress("embeddings", quiet=comm.rank > 0)
    for number in range(options.problems):
        progress.show(number / options.problems, "problems")
        problem = steps.drawn(rng, MIXED)
        seconds = np.median(steps.times(comm, problem, options.rounds, options.order), axis=(1, 2))
        problems.append(
            {
                "tables": steps.asked(problem),
                "steps": [
                    {"shardings": steps.shardings(problem, text, comm.size), "wall": wall, "cpu": cpu}
                    for text, (wall, cpu) in zip(problem.strategies, seconds.tolist(), strict=True)
                ],
            }
        )
    progress.clear()
    return {
        "format": "fpna-lookups", "schema": 1, "ranks": comm.size, "order": options.order, "cpu": cpu_model(),
        "problems": problems,
    }  # fmt: skip


def _unwritable(out: Path) -> str | None:
    """The reason why the file cannot be written, in a sentence; None if it can."""
    if not out.parent.is_dir():
        return f"{out}: there is no directory {out.parent}; make it, or name another file"
    if out.exists() and not out.is_file():
        return f"{out}: is no regular file; name a file"
    if not os.access(out if out.exists() else out.parent, os.W_OK):
        return f"{out}: may not be written; name another file"
    return None


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10**4:
        raise argparse.ArgumentTypeError(f"{text!r}: give 1 to 10,000")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
