"""`cost`: messages, bytes, additions and modelled time of schedules, as a table."""

from __future__ import annotations

import argparse
from typing import Any

from kernels.allreduce.catalog import orderings
from kernels.allreduce.cost import cost
from kernels.allreduce.operations import ELEMENTS
from kernels.allreduce.ordering import scheduled
from kernels.allreduce.reduction import Reduction
from kernels.as_json import Document, Rows, columns, document
from kernels.commands import choice
from kernels.commands.options import add_json, add_loudness
from kernels.commands.parser import Number
from kernels.guarantees import ChoiceError, known

DOCUMENTS = {
    "kernels allreduce cost": Document(
        columns("""
            ranks length | integer
            dtype | text
            alpha beta gamma | number, s | per message, byte, addition
            alpha_across beta_across | number, s | from node to node
        """),
        (
            Rows(
                "tables.costs",
                "a row per ordering",
                columns("""
            ordering | text
            rounds messages bytes | integer
            critical_messages critical_bytes critical_additions | integer | of the busiest rank, inside its node
            crossing | integer | bytes from node to node
            crossing_messages | integer | of the busiest rank
            crossing_bytes | integer | of the busiest node
            seconds | number, s
            """),
            ),
        ),
    ),
}


def rows(
    chosen: list[Reduction],
    size: int,
    n: int,
    times: tuple[float, ...],
    placed: tuple[int, ...] | None = None,
    **context,
) -> list[dict[str, Any]]:
    """Counts and modelled time of one all-reduce of n elements, a row per ordering and accumulation.

    `times`: arguments of `Cost.seconds`. `placed`: the node of every rank, to count messages between nodes separately.
    `context`: arguments of `Ordering.schedule`. Additions and time are those of the busiest rank, round by round.
    """
    listed = []
    for reduction in chosen:
        ordering = reduction.entry
        schedule = choice.feasible(ordering, ordering.schedule(size, **context))
        c = cost(schedule, n, reduction.element_bytes, reduction.total_element_bytes, placed)
        listed.append({"ordering": reduction.label} | vars(c) | {"seconds": c.seconds(*times)})
    return listed


def table(listed: list[dict[str, Any]], verbose: bool = False, placed: bool = False) -> str:
    """The table with a line for each of `rows`. `verbose`: also messages and bytes of the busiest rank. `placed`: also
    the bytes between nodes, and the bytes over the link of the busiest node."""
    width = max(20, *(len(row["ordering"]) + 2 for row in listed))
    lines = [
        f"{'ordering':<{width}}{'rounds':>7}{'messages':>10}{'bytes sent':>14}{'additions':>12}{'time (us)':>12}"
    ]
    if placed:
        lines[0] += f"{'across nodes':>14}{'of one link':>14}"
    if verbose:
        lines[0] += f"{'messages of one':>17}{'bytes of one':>14}"
    for row in listed:
        counts = f"{row['rounds']:>7}{row['messages']:>10}{row['bytes']:>14}{row['critical_additions']:>12}"
        lines.append(f"{row['ordering']:<{width}}{counts}{row['seconds'] * 1e6:>12.2f}")
        if placed:
            lines[-1] += f"{row['crossing']:>14}{row['crossing_bytes']:>14}"
        if verbose:
            lines[-1] += f"{row['critical_messages']:>17}{row['critical_bytes']:>14}"
    return "\n".join(lines)


def register(commands) -> None:
    """Adds the command `cost`."""
    parser = commands.add_parser(
        "cost",
        help="messages, bytes, additions and modelled time of the schedules",
        description="Counts messages, bytes and additions of schedules. Additions and time are those of the busiest "
        "rank, round by round. Bytes are those of partial sums in the type of the accumulation, then of the rounded "
        "total; messages by which ranks agree beforehand are left out. The defaults of --alpha, --beta and --gamma "
        "describe a fast network. With --nodes, messages between nodes are counted separately: the ranks of a node "
        "share its link, with the costs --alpha-across and --beta-across.",
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
    parser.add_argument(
        "--alpha-across",
        type=seconds,
        help="with --nodes: seconds per message from node to node (default: --alpha)",
    )
    parser.add_argument(
        "--beta-across",
        type=seconds,
        help="with --nodes: seconds per byte of a node's link (default: --beta)",
    )
    add_json(parser)
    add_loudness(parser, "the table alone", "also messages and bytes of the busiest rank")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    known("dtype", args.dtype, ELEMENTS)
    names = args.orderings or [o.name for o in orderings() if o.scheduled]
    chosen = [Reduction.named(name, args.length, args.dtype) for name in names]
    for o in (reduction.entry for reduction in chosen):
        if not o.scheduled:
            raise ChoiceError(
                f"ordering {o.name!r} has no schedule to count: {o.why}. These have one: {scheduled()}"
            )
    for option in ("alpha_across", "beta_across"):
        if getattr(args, option) is not None and not args.nodes:
            raise ChoiceError(
                f"--{option.replace('_', '-')} needs --nodes: without it all ranks are on one node"
            )
    across = [
        inside if given is None else given
        for given, inside in ((args.alpha_across, args.alpha), (args.beta_across, args.beta))
    ]
    times = args.alpha, args.beta, args.gamma, *across
    listed = [
        row
        for one in chosen
        for row in rows([one], args.ranks, args.length, times, args.nodes, **choice.fitting(args, one))
    ]
    if args.json:
        print(document(1, "kernels allreduce cost", ranks=args.ranks, length=args.length, dtype=args.dtype,
                       alpha=args.alpha, beta=args.beta, gamma=args.gamma,
                       alpha_across=across[0], beta_across=across[1], tables={"costs": listed}))  # fmt: skip
    else:
        print(table(listed, args.verbose, args.nodes is not None))
    return 0
