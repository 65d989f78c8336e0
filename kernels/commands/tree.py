"""`tree`: the expression that sums one element."""

from __future__ import annotations

import argparse

from kernels.allreduce.tree import trees
from kernels.as_json import Document, columns, document
from kernels.commands import choice
from kernels.commands.options import add_json, add_loudness
from kernels.tree import depth, expression

DOCUMENTS = {
    "kernels allreduce tree": Document(
        columns("""
            ordering guarantee why | text
            ranks length element | integer
            depth | integer | additions one after the other
            expression | text
        """)
    ),
}


def register(commands) -> None:
    """Adds the command `tree`."""
    parser = commands.add_parser(
        "tree",
        help="the expression that sums one element",
        description="Prints the expression that sums one element. x[i] is the contribution of rank i, or of block i "
        "for orderings over blocks.",
        epilog="example: python -m kernels.allreduce tree ring -n 4 --element 1",
    )
    choice.add_schedule(parser)
    parser.add_argument(
        "--element", type=choice.LENGTH, default=0, help="element of the vector (default: %(default)s)"
    )
    add_json(parser)
    add_loudness(parser, "the expression alone", "also the depth, the guarantee, and the reason")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    reduction, schedule = choice.chosen(args)
    n = choice.length(args, schedule)
    tree = trees(schedule, args.element, n)[0]
    known = {"ordering": reduction.label, "guarantee": reduction.guarantee, "why": reduction.entry.why}
    if args.json:
        print(document(1, "kernels allreduce tree", **known, ranks=args.ranks, length=n, element=args.element,
                       depth=depth(tree), expression=expression(tree)))  # fmt: skip
        return 0
    print(expression(tree))
    if args.verbose:
        print(f"{known['ordering']}: depth {depth(tree)}; promises {known['guarantee']}: {known['why']}")
    return 0
