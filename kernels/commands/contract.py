"""`python -m kernels.contract`: products whose bits do not depend on cuts, and certificates of changes in bits."""

from __future__ import annotations

import argparse
import sys
import textwrap
from typing import Any

from kernels.as_json import Document, columns, document, rows
from kernels.bits import bound
from kernels.commands.entry import command_line
from kernels.commands.options import add_json, add_loudness, add_version
from kernels.commands.parser import Number, Parser
from kernels.contract.cases import cases
from kernels.contract.certify import DECKS, THREADS, TYPES, Certificate, certify
from kernels.guarantees import ChoiceError, known
from kernels.missing import missing
from kernels.progress import Progress
from kernels.ranges import SEEDS
from kernels.registry import variants

OPERATIONS = (
    "matmul", "conv", "conv_input", "conv_weight", "rowsum", "pointwise", "attention", "attention_backward",
)  # fmt: skip

DOCUMENTS = {
    "kernels contract list": Document(
        rows=(
            rows(
                "tables.variants",
                "the variants of each operation",
                """
            operation variant backend guarantee why | text
            parameters | list of text | options, besides the data
            unavailable | text? | why it cannot run here
            """,
            ),
        )
    ),
    "kernels contract certify": Document(
        columns("""
            deck | text
            seed | integer
        """),
        (
            rows(
                "tables.certificates",
                "a row per operation, variant and change",
                """
            operation variant dtype | text
            threads | integer
            changed | text | the dim that was cut, `address` or `threads`
            trials | integer
            differ | integer | trials
            ulp | number, ULP | the largest distance
            bound | number | upper 95 % bound on the probability of a difference in a trial; null after a difference
            """,
            ),
        ),
    ),
}


# ---- list


def entries() -> list[dict[str, Any]]:
    """The rows of the JSON document: every variant."""
    return [
        {
            "operation": v.operation, "variant": v.name, "backend": v.backend, "guarantee": v.guarantee, "why": v.why,
            "parameters": list(v.parameters), "unavailable": v.unavailable(),
        }
        for operation in OPERATIONS
        for v in variants(operation)
    ]  # fmt: skip


def listing(quiet: bool = False, verbose: bool = False) -> str:
    """The list of operations and variants with guarantees; `quiet`: without reasons; `verbose`: with parameters."""
    lines = []
    for row in entries():
        begin = f"{row['operation']:<20}{row['variant']:<14}{row['guarantee']:<8}"
        why = [] if quiet else textwrap.wrap(row["unavailable"] or row["why"], 78)
        why += [f"Takes: {', '.join(row['parameters'])}."] if verbose and row["parameters"] else []
        lines += [f"{begin}{why[0]}" if why else begin.rstrip()]
        lines += [f"{'':<42}{more}" for more in why[1:]]
    return "\n".join(lines)


# ---- certify


def table(certificates: list[Certificate], verbose: bool = False) -> str:
    """A table of the trials that differed, by type and threads: a line per operation and variant, if `verbose` also
    per change."""
    columns = [(dtype, threads) for dtype in TYPES for threads in THREADS]
    heads = "".join(f"{f'{dtype} t{threads}':>13}" for dtype, threads in columns)
    lines = [f"{'operation':<24}{'variant':<8}{heads}{'ulp':>9}{'bound':>8}   changed by"]
    rows: dict[tuple[str, ...], list[Certificate]] = {}
    for c in certificates:
        rows.setdefault((c.operation, c.variant, *([c.changed] if verbose else [])), []).append(c)
    for (operation, variant, *_), row in rows.items():
        line = f"{operation:<24}{variant:<8}"
        for key in columns:
            cell = [c for c in row if (c.dtype, c.threads) == key]
            text = f"{sum(c.differ for c in cell)} / {sum(c.trials for c in cell)}" if cell else ""
            line += f"{text:>13}"
        found = dict.fromkeys(c.changed for c in row if c.differ)
        if found:
            line += f"{max(c.ulp for c in row):>9.3g}{'':>8}   {', '.join(found)}"
        else:
            least = min(sum(c.trials for c in row if (c.dtype, c.threads) == key) or 10**9 for key in columns)
            line += f"{'':>9}{100 * bound(least):>6.2g} %   {f'nothing: {row[0].changed}' if verbose else 'nothing'}"
        lines.append(line)
    return "\n".join(lines)


def summary(certificates: list[Certificate]) -> str:
    """A line with the number of certificates with a difference, by variant."""
    parts = []
    for variant in dict.fromkeys(c.variant for c in certificates):
        mine = [c for c in certificates if c.variant == variant]
        parts.append(f"{variant}: {sum(c.differ > 0 for c in mine)} of {len(mine)}")
    return f"Certificates with a difference: {'; '.join(parts)}."


# ---- command line


def parser(prog: str = "python -m kernels.contract") -> argparse.ArgumentParser:
    """The arguments of all commands."""
    top = Parser(prog=prog, description=__doc__)
    add_version(top)
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    shown = commands.add_parser(
        "list", help="every variant of every operation, with its guarantee and the reason (default)"
    )
    add_json(shown)
    add_loudness(shown, "without the reasons", "also the parameters of each variant")
    certified = commands.add_parser(
        "certify",
        help="which bits change when dims that are not summed are cut",
        description="Cuts dims that are not summed, moves operands in memory, changes threads, and counts the trials "
        "in which a bit differs from the whole. Exit code 3: a bit differed in the variant own, which promises equal "
        "bits.",
    )
    certified.add_argument(
        "--what",
        metavar="OPERATION",
        action="append",
        help="only this operation; can be repeated (default: all)",
    )
    certified.add_argument("--variant", choices=("own", "torch"), help="only this one (default: both)")
    certified.add_argument(
        "--deck", choices=DECKS, default="S", help="number of trials and largest dim (default: S)"
    )
    certified.add_argument(
        "--seed", type=Number(0, SEEDS), default=0, help="seed of all random numbers: %(type)s (default: 0)"
    )
    add_json(certified)
    add_loudness(certified, "the last line alone, no progress", "a line for each change")
    return top


@command_line
def main(argv: list[str] | None = None, prog: str = "python -m kernels.contract") -> int:
    """Runs one command; returns the exit code. `prog`: the words that the user typed before the command."""
    top = parser(prog)
    try:
        args = top.parse_args(argv)
        return _certify(args) if args.command == "certify" else _list(args)
    except ValueError as error:  # ChoiceError is one
        print(f"{top.prog}: {error}", file=sys.stderr)
        return 2


def _list(args: argparse.Namespace) -> int:
    if args.command and args.json:
        print(document(1, "kernels contract list", tables={"variants": entries()}))
    else:
        print(listing(args.quiet, args.verbose) if args.command else listing())
    return 0


def _certify(args: argparse.Namespace) -> int:
    if reason := missing("torch")():
        raise ChoiceError(f"certify: {reason}")
    chosen = [c for c in cases() if args.variant in (None, c.variant)]
    if args.what:
        names = list(dict.fromkeys(c.operation for c in chosen))
        wanted = {known("operation", name, names) for name in args.what}
        chosen = [c for c in chosen if c.operation in wanted]
    certificates: list[Certificate] = []
    progress = Progress("certify", quiet=args.quiet)
    for number, found in enumerate(certify(chosen, DECKS[args.deck], args.seed), 1):
        certificates += found
        progress.show(number / len(chosen), f"{found[0].operation}, {found[0].variant}")
    progress.clear()
    failed = any(c.differ for c in certificates if c.variant == "own")
    if args.json:
        rows = [c.entry() for c in certificates]
        print(
            document(
                1, "kernels contract certify", deck=args.deck, seed=args.seed, tables={"certificates": rows}
            )
        )
    else:
        if not args.quiet:
            print(table(certificates, args.verbose))
        print(summary(certificates))
    return 3 if failed else 0
