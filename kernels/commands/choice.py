"""Arguments that several commands share: an ordering and its ranks, and the schedule that they select."""

from __future__ import annotations

import argparse
import re

from kernels.allreduce.catalog import orderings
from kernels.allreduce.ordering import CONTEXT, Ordering, scheduled
from kernels.allreduce.reduction import Reduction
from kernels.allreduce.schedule import Schedule
from kernels.allreduce.schedules.in_order import in_order
from kernels.commands.parser import Number
from kernels.guarantees import ChoiceError
from kernels.ranges import cut

RANKS = 256  # at most: the size of a schedule grows with their square
PARTS = 2**18  # ranks times chunks, at most
LISTED = 65536  # numbers between commas, at most
LENGTH = Number(0, 2**40)  # elements of a vector that is never allocated
NUMBER = Number(0, 2**31 - 1)


def numbers(text: str) -> tuple[int, ...]:
    """Whole numbers between commas; the `type` of an argument."""
    parts = text.split(",")
    if len(parts) > LISTED or not all(re.fullmatch(r"\s*-?[0-9]+\s*", part) for part in parts):
        raise argparse.ArgumentTypeError(
            f"{cut(repr(text))} is no list of numbers: write them between commas, as 0,0,1,1, at most {LISTED}"
        )
    return tuple(int(NUMBER(part)) for part in parts)


def add_ranks(parser: argparse.ArgumentParser) -> None:
    """Adds the options for the number of ranks, their nodes, and the owners of blocks."""
    parser.add_argument(
        "-n", "--ranks", type=Number(1, RANKS), default=4, help="%(type)s (default: %(default)s)"
    )
    parser.add_argument(
        "--nodes",
        type=numbers,
        metavar="0,0,1,1",
        help="node of every rank (default: two nodes, half of the ranks on each)",
    )
    parser.add_argument(
        "--owners",
        type=numbers,
        metavar="0,0,1",
        help="rank that owns each block (default: one block on every rank)",
    )


def add_schedule(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments for one ordering, and everything that its schedule depends on."""
    parser.add_argument(
        "ordering",
        metavar="NAME",
        help="an ordering of `list`, with optional parameters and accumulation: k-nomial:k=4, 'ring:start=1 in exact'",
    )
    add_ranks(parser)
    parser.add_argument(
        "--length",
        type=LENGTH,
        help="elements of the vector (default: the number of ranks or of chunks, whichever is larger)",
    )
    parser.add_argument(
        "--short", action="store_true", help="the variant for short vectors, of orderings that have one"
    )
    parser.add_argument(
        "--order", type=numbers, metavar="0,2,1", help="for arrival: the ranks in the order of their arrival"
    )


def context(args: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    """The node of every rank and the owner of every block, as given or by default.

    Raises ChoiceError if there is not one node per rank, or an owner is not a rank.
    """
    size = args.ranks
    nodes = args.nodes or tuple(2 * rank // size for rank in range(size))
    if len(nodes) != size:
        raise ChoiceError(
            f"--nodes {_joined(nodes)}: {len(nodes)} numbers for {size} ranks; give one for each"
        )
    owners = args.owners or tuple(range(size))
    if not all(0 <= owner < size for owner in owners):
        raise ChoiceError(f"--owners {_joined(owners)}: choose ranks from 0 ... {size - 1}")
    return {"nodes": nodes, "owners": owners}


def fitting(args: argparse.Namespace, reduction: Reduction) -> dict[str, tuple[int, ...]]:
    """`context`, but without the default nodes if the reduction reads its nodes from a file of links."""
    known = context(args)
    if args.nodes is None and reduction.needs_links:
        del known["nodes"]
    return known


def chosen(args: argparse.Namespace) -> tuple[Reduction, Schedule]:
    """The reduction and the schedule that the arguments name; raises ChoiceError if there is no such schedule."""
    reduction = Reduction.named(args.ordering)
    entry = reduction.entry
    around = fitting(args, reduction)
    for option in CONTEXT:
        if getattr(args, option, None) and option not in entry.needs:
            having = ", ".join(o.name for o in orderings() if option in o.needs) or "none so far"
            raise ChoiceError(f"--{option}: {entry.name!r} does not depend on it; these do: {having}")
    if args.short and not entry.short:
        having = ", ".join(o.name for o in orderings() if o.short)
        raise ChoiceError(
            f"--short: {entry.name!r} has one schedule for all lengths; these have two: {having}"
        )
    if args.order is not None:
        if entry.name != "arrival":
            raise ChoiceError(
                f"--order is only for the ordering arrival; {entry.name!r} fixes its order itself"
            )
        try:
            return reduction, in_order(args.ranks, args.order)
        except ValueError as error:
            raise ChoiceError(f"--order {_joined(args.order)}: {error}") from None
    if not entry.scheduled:
        raise ChoiceError(
            f"ordering {entry.name!r} has no fixed tree: {entry.why}. These have one: {scheduled()}; "
            "arrival has one when --order gives its order"
        )
    return reduction, feasible(entry, entry.schedule(args.ranks, args.short, **around))


def feasible(ordering: Ordering, schedule: Schedule) -> Schedule:
    """Returns `schedule`; raises ChoiceError if it has more than PARTS chunks over all ranks."""
    most = PARTS // schedule.size
    if schedule.chunks > most:
        raise ChoiceError(
            f"ordering {ordering.name!r} cuts the vector into {schedule.chunks} chunks: at most {most} are "
            f"possible on {schedule.size} ranks; choose fewer segments"
        )
    return schedule


def length(args: argparse.Namespace, schedule: Schedule) -> int:
    """The number of elements of the vector; raises ChoiceError if --element is outside."""
    n = max(schedule.size, schedule.chunks) if args.length is None else args.length
    if args.element is not None and not 0 <= args.element < n:
        allowed = f"choose 0 ... {n - 1}, or another --length" if n else "choose a --length of 1 or more"
        raise ChoiceError(f"--element {args.element}: there is none in a vector of {n}; {allowed}")
    return n


def _joined(numbers: tuple[int, ...]) -> str:
    return cut(",".join(map(str, numbers)))
