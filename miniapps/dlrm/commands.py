"""`fpna sharding` compares the shardings of DLRM's tables by prices of plans. It needs no MPI."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from typing import Any

from kernels.as_json import Document, columns, document, rows
from kernels.commands.entry import command_line
from kernels.commands.options import add_json, add_version
from kernels.missing import not_installed
from miniapps.dlrm import APP
from miniapps.dlrm.validate import complete, validate
from miniapps.errors import UsageError
from miniapps.partition.showing.price import lines_of
from miniapps.runner.commandline import parse
from miniapps.runner.failure import BAD_USAGE, DONE, USAGE
from miniapps.untrusted.arguments import Parser
from miniapps.untrusted.prediction import RANKS_MOST
from miniapps.untrusted.text import tell

PROG = "python -m miniapps.dlrm.commands"
SHARDING = "--sharding"
DESCRIPTION = """\
Compares all shardings of DLRM's tables before any run. All options of fpna dlrm describe the problem and the guarantee.
--calibration DIR names a run of fpna calibrate --plan 'dlrm ...', best on as many ranks; it may be repeated."""

DOCUMENTS = {
    "sharding": Document(
        columns("""
            price | object | what `fpna price --json` says of the plans that were priced
            assignments | integer | of shardings to tables
            looked | integer | assignments, or nodes of branch and bound, that the search looked at
            exact | boolean | whether no assignment has a lower sum of its tables' seconds than the first
            least_s | number, s | no assignment has a lower sum
            seconds | number, s | that the comparison took
        """),
        (
            rows(
                "shardings",
                "the plans that were priced ([what they say](../explanation/dlrm.md#the-fastest-sharding))",
                """
            title | text | of the plan in `price`
            sharding | text | as `--sharding` takes it
            """,
            ),
            rows(
                "left",
                "shardings without a price, which no assignment has",
                """
            sharding reason | text
            """,
            ),
        ),
    ),
}


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line, without the options of DLRM; `prog` is the text that the user typed before the options."""
    top = Parser(
        prog=prog,
        usage=f"{prog} --ranks P (--calibration DIR | --machine FILE) [options of fpna dlrm]",
        example=f"{prog} --ranks 2 --calibration cal --rows 100000 --tables 8 --guarantee layout",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_version(top)
    top.add_argument("--ranks", type=int, required=True, metavar="P", help="ranks that have the tables")
    top.add_argument(
        "--machine", metavar="FILE", help="prices on another machine: a TOML file, see fpna price"
    )
    top.add_argument("--clock", choices=("cpu", "wall"), default="wall", help="of the prices (%(default)s)")
    add_json(top)
    return top


@command_line
def main(argv: list[str] | None = None, prog: str = PROG) -> int:
    """Prints the comparison; returns the exit code."""
    own, others = parser(prog).parse_known_args(argv)
    try:
        compared(own, others, prog)
    except USAGE as error:
        tell(f"sharding: {error}", sys.stderr)
        return BAD_USAGE
    except ModuleNotFoundError as error:
        if (sentence := not_installed(error)) is None:
            raise
        tell(f"sharding: {sentence}", sys.stderr)
        return BAD_USAGE
    return DONE


def compared(own: argparse.Namespace, others: list[str], prog: str) -> None:
    """Compares the shardings and prints the answer. `others`: the options of DLRM. Raises UsageError, ChoiceError."""
    from miniapps.dlrm.choosing import compare

    if any(word.partition("=")[0] == SHARDING for word in others):
        raise UsageError(f"{SHARDING}: the command compares all of them; leave it out")
    options, config, _ = parse(replace(APP, command=prog), others, os.environ)
    calibrations, config.embeddings.calibration = config.embeddings.calibration, ()
    if not 1 <= own.ranks <= RANKS_MOST:
        raise UsageError(f"--ranks {own.ranks}: give 1 to {RANKS_MOST:,}")
    if not (calibrations or own.machine):
        raise UsageError(
            "--calibration DIR is missing: the command compares prices; time kernels and messages by mpirun -n "
            f"{own.ranks} fpna calibrate --out cal --plan dlrm, or give a machine file (--machine)"
        )
    complete(config, options, own.ranks)
    validate(config, options, own.ranks)
    found = compare(config, options, own.ranks, calibrations, own.machine, own.clock)
    if own.json:
        told: dict[str, Any] = {
            "price": found.price, "assignments": found.count, "looked": found.found.looked,
            "exact": found.found.exact, "least_s": found.found.least, "seconds": found.seconds,
            "shardings": [{"title": title, "sharding": text} for title, text in found.shardings.items()],
            "left": [{"sharding": name, "reason": reason} for name, reason in found.left],
        }  # fmt: skip
        tell(document(1, "sharding", **told), keep="\n")
        return
    left = [f"Not compared: {name}: {reason}" for name, reason in found.left]
    tell(
        "\n".join([found.sentence(), *lines_of(found.price), *left, f"Best: {SHARDING} {found.best}"]),
        keep="\n",
    )


if __name__ == "__main__":
    sys.exit(main())
