"""`cost`: what the schedules cost, as a table."""

from __future__ import annotations

import argparse

from kernels.allreduce.catalog import Ordering, get, orderings
from kernels.allreduce.cost import cost
from kernels.commands import choice
from kernels.commands.parser import Number
from kernels.guarantees import ChoiceError


def table(
    chosen: list[Ordering], size: int, n: int, itemsize: int, times: tuple[float, float, float], **context
) -> str:
    """Counts and modelled time of one all-reduce of n elements, a line per ordering that has a schedule.

    `times` are alpha, beta and gamma of `Cost.seconds`; `context` is that of `Ordering.schedule`. Additions and time
    are those of the busiest rank, round by round.
    """
    width = max(20, *(len(o.name) + 2 for o in chosen))
    head = ("ordering", "rounds", "messages", "bytes sent", "additions", "time (us)")
    lines = [f"{head[0]:<{width}}{head[1]:>7}{head[2]:>10}{head[3]:>14}{head[4]:>12}{head[5]:>12}"]
    for o in chosen:
        schedule = o.schedule(size, **context)
        if schedule:
            c = cost(choice.feasible(o, schedule), n, itemsize)
            counts = f"{c.rounds:>7}{c.messages:>10}{c.bytes:>14}{c.critical_additions:>12}"
            lines.append(f"{o.name:<{width}}{counts}{c.seconds(*times) * 1e6:>12.2f}")
    return "\n".join(lines)


def register(commands) -> None:
    """Add the command `cost`."""
    parser = commands.add_parser(
        "cost",
        help="messages, bytes, additions and modelled time of the schedules",
        description="Counts what the schedules do. Additions and time are those of the busiest rank, round by round. "
        "The defaults of --alpha, --beta and --gamma are a fast network's.",
        epilog="example: python -m kernels.allreduce cost -n 64 --length 3",
    )
    parser.add_argument("orderings", metavar="NAME", nargs="*", help="(default: all)")
    choice.add_ranks(parser)
    parser.add_argument(
        "--length", type=choice.LENGTH, default=1000, help="elements of the vector (default: %(default)s)"
    )
    parser.add_argument(
        "--itemsize", type=Number(1, 2**20), default=8, help="bytes of an element (default: %(default)s)"
    )
    seconds = Number(0.0, 1e6)
    parser.add_argument(
        "--alpha", type=seconds, default=1e-6, help="seconds per message (default: %(default)s)"
    )
    parser.add_argument("--beta", type=seconds, default=1e-10, help="seconds per byte (default: %(default)s)")
    parser.add_argument(
        "--gamma", type=seconds, default=2.5e-10, help="seconds per addition (default: %(default)s)"
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    around = choice.context(args)
    chosen = [get(name) for name in args.orderings] or orderings()
    for o in chosen:
        if args.orderings and not o.scheduled:
            having = ", ".join(o.name for o in orderings() if o.scheduled)
            raise ChoiceError(
                f"ordering {o.name!r} has no schedule to count: {o.why}. These have one: {having}"
            )
    times = args.alpha, args.beta, args.gamma
    print(table(chosen, args.ranks, args.length, args.itemsize, times, **around))
    return 0
