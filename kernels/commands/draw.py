"""`draw`: a picture of an ordering's trees and schedule."""

from __future__ import annotations

import argparse
import re
import sys

from kernels.allreduce.instruments.draw import KINDS, ordering_svg
from kernels.allreduce.instruments.draw_schedule import RANKS
from kernels.allreduce.instruments.draw_tree import LEAVES
from kernels.commands import choice
from kernels.commands.options import add_loudness
from kernels.guarantees import ChoiceError


def register(commands) -> None:
    """Adds the command `draw`."""
    parser = commands.add_parser(
        "draw",
        help="a picture (SVG) of an ordering's trees and schedule",
        description="Draws the trees that sum the elements of the vector, as rank 0 evaluates them, and the schedule: "
        f"which rank sends which chunk to which rank, and adds it, round by round. At most {LEAVES} terms in a tree "
        f"and {RANKS} ranks in a schedule.",
        epilog="example: python -m kernels.allreduce draw ring -n 8 -o ring.svg",
    )
    choice.add_schedule(parser)
    parser.add_argument("--what", choices=KINDS, default="both", help="part to draw (default: %(default)s)")
    parser.add_argument(
        "--element", type=choice.LENGTH, help="element whose tree to draw (default: all different trees)"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.svg",
        help="file to write; - for standard output (default: NAME-RANKS.svg)",
    )
    add_loudness(parser, "without the name of the file", "also the numbers of rounds, ranks and chunks")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    reduction, schedule = choice.chosen(args)
    n = choice.length(args, schedule)
    if n == 0:
        raise ChoiceError("--length 0: there is nothing to draw; choose 1 or more")
    nodes = choice.context(args)["nodes"] if "nodes" in reduction.entry.needs else None
    picture = ordering_svg(reduction, schedule, n, args.what, args.element, nodes)
    if args.output == "-":
        sys.stdout.write(picture)
        return 0
    path = args.output or re.sub("[^a-z0-9]+", "-", f"{reduction.label}-{args.ranks}") + ".svg"
    try:
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(picture)
    except OSError as error:
        raise ChoiceError(f"-o {path}: cannot be written: {error.strerror}") from None
    if not args.quiet:
        print(path)
    if args.verbose:
        rounds = max(len(list(program)) for program in schedule.ranks())
        print(f"{reduction.label}: {rounds} rounds, {schedule.size} ranks, {schedule.chunks} chunks")
    return 0
