"""The command `fpna cost A B`: the cost of a guarantee or another choice, as a ratio of times of paired launches."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial

from kernels.as_json import Document, columns, document, rows
from kernels.commands.entry import command_line
from kernels.threads import cores
from kernels.timing import in_turn
from miniapps import launching
from miniapps.cost.launches import Command, Launch, command, launch
from miniapps.cost.ratios import MOST_PAIRS, Price, prices
from miniapps.errors import UsageError
from miniapps.system.environment import cpu_model
from miniapps.untrusted.text import printable, tell

SCHEMA = 1
SHOWN, WITHHELD = 0, 4
PAIRS = 10

DESCRIPTION = """\
Measures how many times as long B takes as A. It launches each once to warm up, then both in pairs, A first in every
other pair. The answer is the median of the ratios of the pairs and its 95 % interval, by CPU time and by wall time.
If the launches do not show a ratio, it says why and what to do: too few pairs, a difference smaller than their
scatter, ranks that share cores.

A and B are commands in quotes; or options of the command that follows after --. An application of this suite after --
is timed without its start (CPU time: of rank 0). Any other command is timed as a whole, with all processes that it
starts on this machine.
"""
EPILOG = """\
examples:
  fpna cost '--guarantee none' '--guarantee layout' -- mpirun -n 2 fpna coupled --steps 8
  fpna cost 'mpirun -n 2 ./app input.txt' 'mpirun -n 2 fpna run --guarantee layout --out runs/x$$ -- ./app input.txt'
  fpna cost ./old ./new --pairs 30

Exit codes: 0 a ratio is shown; 2 usage, or a launch failed; 4 no ratio is shown, and the answer says what to do.
"""

DOCUMENTS = {
    "cost": Document(
        columns("""
            a b | text | the commands
            pairs | integer
            ranks | integer | ranks of one launch
            after_start | boolean | whether times exclude the start of an application
            machine | object | `cores`, `cpu`, `date`
            launches | object | `a[]` and `b[]`: `wall` and `cpu` in s; `others`: number of processors that other
              programs used, or null
        """),
        (
            rows(
                "prices",
                "the ratio by each clock",
                """
            clock | text | `CPU time` or `wall time`
            shown | boolean
            ratio low high | number | time of B over time of A, and its 95 % interval
            a_s b_s | number, s | medians
            why | text | the reason to withhold the ratio; empty if it is shown
            """,
            ),
        ),
        "Exit codes are the same as with text output: 0, 4 ([page](../how-to/cost.md))",
    ),
}


def parser(prog: str = "fpna cost") -> argparse.ArgumentParser:
    """The command line before `--`."""
    top = launching.parser(
        prog, f"{prog} A B [options] [-- COMMAND]", DESCRIPTION, EPILOG, quiet="the answer alone"
    )
    top.add_argument("a", metavar="A", help="a command in quotes, or options of COMMAND")
    top.add_argument("b", metavar="B", help="the command or options to compare with A")
    top.add_argument("--pairs", type=int, default=PAIRS, metavar="N", help=f"pairs of launches ({PAIRS})")
    return top


@command_line
def main(argv: Sequence[str] | None = None, prog: str = "fpna cost") -> int:
    """Launch in pairs and print the ratios; returns the exit code."""
    own, common = launching.around_dashes(argv)
    # The space keeps argparse from reading A and B as its own options if they are options of COMMAND.
    sides = [f" {word}" if common and place < 2 and word not in ("-h", "--help", "--version") else word
             for place, word in enumerate(own)]  # fmt: skip
    options = parser(prog).parse_args(sides)
    return launching.code_of(prog, partial(_answer, options, common))


def _answer(options: argparse.Namespace, common: list[str]) -> int:
    if not 1 <= options.pairs <= MOST_PAIRS:
        raise UsageError(f"--pairs {options.pairs}: choose 1 to {MOST_PAIRS}; a ratio needs at least six")
    sides = [command(name, text.strip(), common) for name, text in (("A", options.a), ("B", options.b))]
    if sides[0].text == sides[1].text:
        raise UsageError(f"A and B are the same command, {printable(sides[0].text)}; give two different ones")
    launches = in_turn(
        {side.name: partial(launch, side, options.timeout) for side in sides},
        options.pairs,
        options.quiet,
        "cost",
    )
    ranks, here = max(side.ranks for side in sides), cores()
    found = prices(launches["A"], launches["B"], ranks, here)
    if options.json:
        print(_document(options, sides, launches, found, ranks, here))
    else:
        for line in sentences(sides, found, options.pairs, here):
            tell(line)
    return SHOWN if any(not each.why for each in found) else WITHHELD


def sentences(sides: list[Command], found: list[Price], pairs: int, here: int) -> list[str]:
    """The answer in words."""
    whole = (
        "of the run after its start" if all(side.application for side in sides) else "of the whole command"
    )
    lines = [f"{side.name}  {side.text}" for side in sides]
    lines.append(
        f"{pairs} pair{'s' * (pairs > 1)}, times {whole}; {here} cores, {cpu_model()}, {datetime.now(UTC):%Y-%m-%d}"
    )
    for each in found:
        medians = f"medians {each.a_s:.4g} s and {each.b_s:.4g} s"
        if each.why:
            lines.append(f"{each.clock:<9}  not shown: {each.why}; {medians}")
        else:
            lines.append(
                f"{each.clock:<9}  B takes {each.ratio:.4g} times as long as A "
                f"({each.low:.4g} to {each.high:.4g}, 95 %); {medians}"
            )
    return lines


def _document(
    options: argparse.Namespace, sides: list[Command], launches: dict[str, list[Launch]], found: list[Price],
    ranks: int, here: int,
) -> str:  # fmt: skip
    return document(
        SCHEMA, "cost", **{side.name.lower(): side.text for side in sides}, pairs=options.pairs, ranks=ranks,
        after_start=all(side.application for side in sides),
        machine={"cores": here, "cpu": cpu_model(), "date": datetime.now(UTC).isoformat(timespec="seconds")},
        prices=[asdict(each) | {"shown": not each.why} for each in found],
        launches={name.lower(): [asdict(each) for each in own] for name, own in launches.items()},
    )  # fmt: skip
