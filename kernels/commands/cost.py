"""`cost`: what the schedules cost, as a table."""

from __future__ import annotations

import argparse
from typing import Any

from kernels.allreduce.catalog import orderings, scheduled
from kernels.allreduce.cost import cost
from kernels.allreduce.operations import ELEMENTS
from kernels.allreduce.reduction import Reduction
from kernels.as_json import document
from kernels.commands import choice
from kernels.commands.options import add_json, add_loudness
from kernels.commands.parser import Number
from kernels.guarantees import ChoiceError, known


def rows(
    chosen: list[Reduction], size: int, n: int, times: tuple[float, float, float], **context
) -> list[dict[str, Any]]:
    """Counts and modelled time of one all-reduce of n elements, a row per ordering and accumulation.

    `times` are alpha, beta and gamma of `Cost.seconds`; `context` is that of `Ordering.schedule`. Additions and time
    are those of the busiest rank, round by round.
    """
    listed = []
    for reduction in chosen:
        ordering = reduction.entry
        schedule = choice.feasible(ordering, ordering.schedule(size, **context))
        c = cost(schedule, n, reduction.element_bytes)
        listed.append({"ordering": reduction.label} | vars(c) | {"seconds": c.seconds(*times)})
    return listed


def table(listed: list[dict[str, Any]], verbose: bool = False) -> str:
    """A line for each of `rows`; `verbose`: also what the busiest rank sends or receives."""
    width = max(20, *(len(row["ordering"]) + 2 for row in listed))
    lines = [
        f"{'ordering':<{width}}{'rounds':>7}{'messages':>10}{'bytes sent':>14}{'additions':>12}{'time (us)':>12}"
    ]
    if verbose:
        lines[0] += f"{'messages of one':>17}{'bytes of one':>14}"
    for row in listed:
        counts = f"{row['rounds']:>7}{row['messages']:>10}{row['bytes']:>14}{row['critical_additions']:>12}"
        lines.append(f"{row['ordering']:<{width}}{counts}{row['seconds'] * 1e6:>12.2f}")
        if verbose:
            lines[-1] += f"{row['critical_messages']:>17}{row['critical_bytes']:>14}"
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
    add_json(parser)
    add_loudness(parser, "the table alone", "also messages and bytes of the busiest rank")
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
    listed = rows(chosen, args.ranks, args.length, times, **around)
    if args.json:
        print(document(1, "kernels allreduce cost", ranks=args.ranks, length=args.length, dtype=args.dtype,
                       alpha=args.alpha, beta=args.beta, gamma=args.gamma, tables={"costs": listed}))  # fmt: skip
    else:
        print(table(listed, args.verbose))
    return 0
