"""`python -m kernels.allreduce`: the orderings. `tree NAME` and `cost`: what their schedules do."""

from __future__ import annotations

import argparse
import sys
import textwrap

from kernels.allreduce.catalog import get, orderings
from kernels.allreduce.cost import cost
from kernels.allreduce.schedules.in_order import in_order
from kernels.allreduce.tree import trees
from kernels.guarantees import ChoiceError
from kernels.tree import expression


def table() -> str:
    """Name, guarantee, what it does and why it promises that, of every ordering."""
    lines = [f"{'ordering':<20}{'guarantee':<11}what it does"]
    for o in orderings():
        text = textwrap.wrap(o.summary, 79) + textwrap.wrap(f"Why: {o.why}.", 79)
        lines.append(f"{o.name:<20}{o.guarantee:<11}{text[0]}")
        lines += [f"{'':<31}{more}" for more in text[1:]]
    return "\n".join(lines)


def tree_text(name: str, size: int, element: int, length: int | None, order: str | None) -> str:
    """The expression that sums one element of a vector of `length`; x[i] is the contribution of rank i."""
    n = size if length is None else length
    if not 0 <= element < n:
        raise ChoiceError(f"no element {element} in a vector of {n}: choose 0 ... {n - 1}, or --length")
    found = get(name)
    if order is not None:
        if name != "arrival":
            raise ChoiceError(f"--order is for arrival: {name!r} has an order of its own")
        try:
            schedule = in_order(size, [int(rank) for rank in order.split(",")])
        except ValueError as error:
            raise ChoiceError(f"--order {order}: {error}") from None
    else:
        schedule = found.schedule(size)
    if schedule is None:
        having = ", ".join(o.name for o in orderings() if o.schedule(size))
        raise ChoiceError(
            f"ordering {name!r} has no fixed tree: {found.why}. These have one: {having}; "
            "arrival has one when --order gives its order"
        )
    return expression(trees(schedule, element, n)[0])


def cost_text(size: int, length: int, alpha: float, beta: float, gamma: float) -> str:
    """Counts and modelled time of every schedule, for one all-reduce of `length` float64."""
    head = ("ordering", "rounds", "messages", "bytes sent", "additions", "time (us)")
    lines = [f"{head[0]:<20}{head[1]:>7}{head[2]:>10}{head[3]:>14}{head[4]:>12}{head[5]:>12}"]
    for o in orderings():
        schedule = o.schedule(size)
        if schedule:
            c = cost(schedule, length, 8)
            time = c.seconds(alpha, beta, gamma) * 1e6
            counts = f"{c.rounds:>7}{c.messages:>10}{c.bytes:>14}{c.critical_additions:>12}"
            lines.append(f"{o.name:<20}{counts}{time:>12.2f}")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels.allreduce", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    tree = commands.add_parser("tree", help="the expression by which one element is summed")
    tree.add_argument("ordering")
    tree.add_argument("-n", "--ranks", type=int, default=4)
    tree.add_argument("--element", type=int, default=0, help="of the vector, from 0")
    tree.add_argument("--length", type=int, help="elements of the vector (default: as many as ranks)")
    tree.add_argument("--order", help="for arrival: ranks in the order of their arrival, as 0,2,1,3")
    costs = commands.add_parser("cost", help="messages, bytes, additions and modelled time of the schedules")
    costs.add_argument("-n", "--ranks", type=int, default=4)
    costs.add_argument("--length", type=int, default=1000, help="elements of the vector (float64)")
    costs.add_argument("--alpha", type=float, default=1e-6, help="seconds per message")
    costs.add_argument("--beta", type=float, default=1e-10, help="seconds per byte")
    costs.add_argument("--gamma", type=float, default=2.5e-10, help="seconds per addition")
    args = parser.parse_args(argv)
    try:
        if args.command and args.ranks < 1:
            raise ChoiceError(f"--ranks {args.ranks}: choose 1 or more")
        if args.command and (args.length or 0) < 0:
            raise ChoiceError(f"--length {args.length}: choose 0 or more")
        if args.command == "tree":
            print(tree_text(args.ordering, args.ranks, args.element, args.length, args.order))
        elif args.command == "cost":
            print(cost_text(args.ranks, args.length, args.alpha, args.beta, args.gamma))
        else:
            print(table())
    except ChoiceError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
