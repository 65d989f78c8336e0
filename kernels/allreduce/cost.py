"""What a schedule costs: counts of rounds, messages, bytes and additions, and the alpha-beta-gamma time.

`cost` on the command line compares the orderings.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial

from kernels.allreduce import command
from kernels.allreduce.catalog import Ordering, get, orderings
from kernels.allreduce.schedule import Round, Schedule, transfers
from kernels.arguments import Range
from kernels.guarantees import ChoiceError


@dataclass(frozen=True)
class Cost:
    """Counts of one all-reduce.

    `messages` and `bytes` are totals over all ranks. `critical_*` add up, over the rounds, the most that any
    one rank sends or receives, or adds.
    """

    rounds: int
    messages: int
    bytes: int
    critical_messages: int
    critical_bytes: int
    critical_additions: int

    def seconds(self, alpha: float, beta: float, gamma: float) -> float:
        """Time for a latency `alpha` (s), a time per byte `beta` (s) and a time per addition `gamma` (s).

        One message after the other per rank, sending and receiving at once (Hockney's model, full duplex).
        """
        return alpha * self.critical_messages + beta * self.critical_bytes + gamma * self.critical_additions


def cost(schedule: Schedule, n: int, itemsize: int) -> Cost:
    """The cost of all-reducing n elements of `itemsize` bytes."""
    programs = list(schedule.ranks())
    parts = [[_part(r, n, schedule) for r in current] for current in zip(*programs, strict=True)]
    return Cost(
        rounds=len(parts),
        messages=sum(part[0] for parts_ in parts for part in parts_),
        bytes=sum(part[1] for parts_ in parts for part in parts_) * itemsize,
        critical_messages=sum(max(max(part[0], part[2]) for part in parts_) for parts_ in parts),
        critical_bytes=sum(max(max(part[1], part[3]) for part in parts_) for parts_ in parts) * itemsize,
        critical_additions=sum(max(part[4] for part in parts_) for parts_ in parts),
    )


def _part(current: Round, n: int, schedule: Schedule) -> tuple[int, int, int, int, int]:
    """Of one rank and round: messages and elements sent, messages and elements received, additions."""
    bounds = partial(schedule.bounds, n)
    sent, received = transfers(current.sends, bounds), transfers(current.receives, bounds)
    additions = 0
    for s in current.sums:
        start, stop = bounds(s.chunk)
        additions += (stop - start) * (len(s.sources) - 1)
    return (
        len(sent),
        sum(t.stop - t.start for t in sent),
        len(received),
        sum(t.stop - t.start for t in received),
        additions,
    )


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
            c = cost(command.feasible(o, schedule), n, itemsize)
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
    command.add_ranks(parser)
    parser.add_argument(
        "--length", type=command.LENGTH, default=1000, help="elements of the vector (default: %(default)s)"
    )
    parser.add_argument(
        "--itemsize", type=Range(1, 2**20), default=8, help="bytes of an element (default: %(default)s)"
    )
    seconds = Range(0.0, 1e6)
    parser.add_argument(
        "--alpha", type=seconds, default=1e-6, help="seconds per message (default: %(default)s)"
    )
    parser.add_argument("--beta", type=seconds, default=1e-10, help="seconds per byte (default: %(default)s)")
    parser.add_argument(
        "--gamma", type=seconds, default=2.5e-10, help="seconds per addition (default: %(default)s)"
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    around = command.context(args)
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
