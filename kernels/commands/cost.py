"""`cost`: what the schedules cost, as a table."""

from __future__ import annotations

import argparse

from kernels.allreduce.catalog import orderings, scheduled
from kernels.allreduce.cost import cost
from kernels.allreduce.operations import ELEMENTS
from kernels.allreduce.reduction import Reduction
from kernels.commands import choice
from kernels.commands.parser import Number
from kernels.guarantees import ChoiceError, known


def table(chosen: list[Reduction], size: int, n: int, times: tuple[float, float, float], **context) -> str:
    """Counts and modelled time of one all-reduce of n elements, a line per ordering and accumulation.

    `times` are alpha, beta and gamma of `Cost.seconds`; `context` is that of `Ordering.schedule`. Additions and time
    are those of the busiest rank, round by round.
    """
    width = max(20, *(len(reduction.label) + 2 for reduction in chosen))
    head = ("ordering", "rounds", "messages", "bytes sent", "additions", "time (us)")
    lines = [f"{head[0]:<{width}}{head[1]:>7}{head[2]:>10}{head[3]:>14}{head[4]:>12}{head[5]:>12}"]
    for reduction in chosen:
        ordering = reduction.entry
        schedule = choice.feasible(ordering, ordering.schedule(size, **context))
        c = cost(schedule, n, reduction.element_bytes)
        counts = f"{c.rounds:>7}{c.messages:>10}{c.bytes:>14}{c.critical_additions:>12}"
        lines.append(f"{reduction.label:<{width}}{counts}{c.seconds(*times) * 1e6:>12.2f}")
    return "\n".join(lines)


def register(commands) -> None:
    """Add the command `cost`."""
    parser = commands.add_parser(
        "cost",
        help="messages, bytes, additions and modelled time of the schedules",
        description="Counts what the schedules do. Additions and time are those of the busiest rank, round by round. "
        "Bytes are those of partial sums as an accumulation holds them; what ranks agree on before is left out. The "
        "defaults of --alpha, --beta and --gamma are a fast network's.",
        epilog="example: python -m kernels.allreduce cost -n 64 --length 3",
    )
    parser.add_argument(
        "orderings",
        metavar="NAME",
        nargs="*",
        help="with or without accumulation: 'ring in exact' (default: all)",
    )
    choice.add_ranks(parser)
    parser.add_argument(
        "--length", type=choice.LENGTH, default=1000, help="elements of the vector (default: %(default)s)"
    )
    parser.add_argument("--dtype", default="float64", help=f"of {', '.join(ELEMENTS)} (default: %(default)s)")
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
    known("dtype", args.dtype, ELEMENTS)
    names = args.orderings or [o.name for o in orderings() if o.scheduled]
    chosen = [Reduction.named(name, args.length, args.dtype) for name in names]
    for o in (reduction.entry for reduction in chosen):
        if not o.scheduled:
            raise ChoiceError(
                f"ordering {o.name!r} has no schedule to count: {o.why}. These have one: {scheduled()}"
            )
    times = args.alpha, args.beta, args.gamma
    print(table(chosen, args.ranks, args.length, times, **around))
    return 0
