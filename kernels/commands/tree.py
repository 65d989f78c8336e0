"""`tree`: the expression by which one element is summed."""

from __future__ import annotations

import argparse

from kernels.allreduce.tree import trees
from kernels.commands import choice
from kernels.tree import expression


def register(commands) -> None:
    """Add the command `tree`."""
    parser = commands.add_parser(
        "tree",
        help="the expression by which one element is summed",
        description="Prints the expression that sums one element; x[i] is the contribution of rank i or, of "
        "orderings over blocks, of block i.",
        epilog="example: python -m kernels.allreduce tree ring -n 4 --element 1",
    )
    choice.add_schedule(parser)
    parser.add_argument(
        "--element", type=choice.LENGTH, default=0, help="of the vector (default: %(default)s)"
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    _, schedule = choice.chosen(args)
    n = choice.length(args, schedule)
    print(expression(trees(schedule, args.element, n)[0]))
    return 0
