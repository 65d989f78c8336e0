"""`python -m kernels.sums`: the ways of adding numbers, their trees, worst orders of arrival, and their results."""

from __future__ import annotations

import argparse
import os
import stat
import sys
import textwrap
from typing import Any

import ml_dtypes
import numpy as np

from kernels import npy
from kernels.as_json import Document, columns, document, rows
from kernels.commands.entry import command_line
from kernels.commands.options import add_json, add_loudness, add_version
from kernels.commands.parser import Number, Parser
from kernels.guarantees import ChoiceError
from kernels.ranges import SEEDS
from kernels.registry import Variant, get, operations, variants
from kernels.sums import emulated, launch, worst
from kernels.sums.compare import compare, correct
from kernels.sums.compare import table as comparison
from kernels.sums.discovery import WRITTEN_OUT, tree_of
from kernels.sums.elements import ACCUMULATORS, vector
from kernels.threads import MOST as MOST_THREADS
from kernels.threads import cores

TERMS = Number(1, 2**16)  # of a discovered tree: discovery takes seconds, and memory for every term
NUMBERS = Number(1, 10**8)  # of an array of random numbers
ARRAY_BYTES = 2**33  # of an array that is read, at most
COUNTS = Number(1, 2**31 - 1)
THREADS = Number(1, MOST_THREADS)
DISTRIBUTIONS = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "uniform": lambda rng, n: rng.random(n),
    "centred": lambda rng, n: rng.random(n) - 0.5,
    "lognormal": lambda rng, n: rng.lognormal(0.0, 2.0, n),
}
PARAMETERS = ("block", "items", "grid", "threads", "seed", "resident")  # options of variants

DOCUMENTS = {
    "kernels sums list": Document(
        rows=(
            rows(
                "tables.variants",
                "the ways of adding",
                """
            operation order backend guarantee why | text
            parameters | list of text | options, besides the data
            unavailable | text? | why it cannot run here
            """,
            ),
        )
    ),
    "kernels sums tree": Document(
        columns("""
            operation order backend guarantee dtype | text
            n | integer | elements
            parameters | object
            kind | text | `tree`, `no tree`, `order-free`, ...
            reason | text? | why there is no tree
            depth | integer?
            expression | text?
            declared | boolean | the variant declares a tree
            as_promised | boolean | the discovery contradicts neither the guarantee nor the declared tree
        """)
    ),
    "kernels sums worst": Document(
        columns("""
            order source dtype | text
            terms together tried | integer
            bound | number
            files | list of text | written files
        """),
        (
            rows(
                "tables.sums",
                "the lowest and highest sums",
                """
            what how | text
            sum off of_bound | number
            """,
            ),
        ),
    ),
    "kernels sums compare": Document(
        columns("""
            source dtype | text
            n | integer | elements
            exact | number | the correctly rounded sum
        """),
        (
            rows(
                "tables.sums",
                "a row per way of adding",
                """
            order backend guarantee | text
            sum | number
            bits | text? | of the sum, hexadecimal
            ulps bound | number, ULP
            median_s low_s high_s | number, s
            calls | integer?
            refused | text? | why the variant did not add
            """,
            ),
        ),
    ),
}


# ---- list


def _operations() -> list[str]:
    """The operations of this package; other packages register theirs in the same registry."""
    return [name for name in ("sum", "dot", "norm") if name in operations()]


def table(quiet: bool = False, verbose: bool = False) -> str:
    """The list of variants with their guarantees, and which cannot run here. `quiet`: without the reasons; `verbose`:
    with the parameters of each variant."""
    lines, absent = [], {}
    for operation in _operations():
        lines += [
            f"{operation:<15}{'backend':<11}{'promises':<10}{'here':<6}{'' if quiet else 'why'}".rstrip()
        ]
        for v in variants(operation):
            reason = v.unavailable()
            if reason:
                absent[v.backend] = reason
            begin = f"{v.name:<15}{v.backend:<11}{v.guarantee:<10}{'no' if reason else 'yes'}"
            why = [] if quiet else textwrap.wrap(v.why, 78)
            if verbose and v.parameters:
                why += textwrap.wrap(f"Takes: {', '.join(v.parameters)}.", 78)
            lines.append(f"{begin:<42}{why[0]}" if why else begin)
            lines += [f"{'':<42}{more}" for more in why[1:]]
        lines.append("")
    if not quiet:
        lines += [f"Not here: {backend}: {reason}" for backend, reason in absent.items()]
    return "\n".join(lines).rstrip()


def entries() -> list[dict[str, Any]]:
    """The rows of the JSON document: every variant."""
    return [
        {
            "operation": v.operation, "order": v.name, "backend": v.backend, "guarantee": v.guarantee, "why": v.why,
            "parameters": list(v.parameters), "unavailable": v.unavailable(),
        }
        for operation in _operations()
        for v in variants(operation)
    ]  # fmt: skip


# ---- tree


def _taken(variant: Variant, given: dict) -> dict:
    """Returns the options `given` on the command line; raises ChoiceError for one that the variant does not take."""
    for name in given:
        if name not in variant.parameters:
            known = ", ".join(f"--{p}" for p in variant.parameters if p in PARAMETERS) or "none"
            raise ChoiceError(
                f"--{name} is not for {variant.name!r} ({variant.backend}), which takes: {known}"
            )
    return given


# ---- worst


def searched(name: str, x: np.ndarray, seed: int, given: dict) -> tuple[np.ndarray, worst.Extremes]:
    """The terms that arrive, and the extreme sums over orders of their arrival."""
    shape = {key: value for key, value in given.items() if key in ("block", "items", "grid")}
    if name == "ao" and shape:
        raise ChoiceError(
            f"--{next(iter(shape))} is not for 'ao', which adds elements one by one: choose --order spa"
        )
    terms = emulated.units(name, x, **shape)
    return terms, worst.search(terms, emulated.UNITS[name], seed)


def worst_rows(extremes: worst.Extremes) -> list[dict[str, Any]]:
    """The rows of the table: exact value, lowest and highest sums found, and those of random orders."""
    random = f"{len(extremes.random)} orders"
    found = [
        ("exact", extremes.exact, ""),
        ("lowest found", extremes.lowest.value, extremes.lowest.method),
        ("lowest of random", extremes.random.min(), random),
        ("highest of random", extremes.random.max(), random),
        ("highest found", extremes.highest.value, extremes.highest.method),
    ]
    return [
        {
            "what": what,
            "sum": float(value),
            "off": float(value) - extremes.exact,
            "of_bound": abs(float(value) - extremes.exact) / extremes.bound if extremes.bound else None,
            "how": how,
        }
        for what, value, how in found
    ]


def worst_text(
    name: str, terms: np.ndarray, source: str, extremes: worst.Extremes, quiet: bool = False
) -> str:
    """The table of sums and the bound as text; unless `quiet`, also the number of sums tried."""
    unit = emulated.UNITS[name]
    what = "partial sums" if name == "spa" else "elements"
    together = f", {unit} arriving together" if unit > 1 else ""
    lines = [
        f"order of arrival {name!r}: {len(terms)} {what} of type {terms.dtype}{together} ({source})",
        f"{'':<19}{'sum':>25}{'off by':>12}{'of the bound':>15}   how",
    ]
    for row in worst_rows(extremes):
        share = "-" if row["of_bound"] is None else f"{100 * row['of_bound']:.2g} %"
        lines.append(
            f"{row['what']:<19}{row['sum']!r:>25}{row['off']:>12.2e}{share:>15}   {row['how']}".rstrip()
        )
    lines.append(f"{'bound':<19}{'':>25}{extremes.bound:>12.2e}{'':>15}   (n - 1) u sum|x|, for any order")
    if not quiet:
        lines.append(f"{extremes.tried} sums tried: the true extremes are at least as far as those found.")
    return "\n".join(lines)


def save_orders(extremes: worst.Extremes, prefix: str) -> list[str]:
    """Writes the orders of the lowest and the highest sum; returns the names of the files."""
    files = []
    try:
        for which, extreme in (("lowest", extremes.lowest), ("highest", extremes.highest)):
            np.save(f"{prefix}-{which}.npy", extreme.order)
            files.append(f"{prefix}-{which}.npy")
    except OSError as error:
        raise ChoiceError(f"--save {prefix}: {error}") from None
    return files


# ---- command line


def numbers(args: argparse.Namespace) -> tuple[np.ndarray, str]:
    """The array to add, and a text that names its source."""
    if (args.file is None) == (args.distribution is None):
        raise ChoiceError(f"name a FILE.npy or a --distribution, not {'both' if args.file else 'neither'}")
    if args.file is None:
        x = DISTRIBUTIONS[args.distribution](np.random.default_rng(args.seed), args.n)
        return x.astype(_dtype(args.dtype)), f"{args.distribution}, seed {args.seed}"
    try:
        x = _read(args.file)
        return vector(x if args.dtype is None else x.astype(_dtype(args.dtype))), args.file
    except (OSError, ValueError, TypeError) as error:
        raise ChoiceError(
            f"{args.file} is not a one-dimensional array of numbers from numpy.save: {error}"
        ) from None


def _read(path: str) -> np.ndarray:
    """Reads the array of a regular file; refuses others: opening a fifo may wait, and reading a device may not end."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a regular file")
        if status.st_size > ARRAY_BYTES:
            raise ValueError(f"it has {status.st_size} bytes, and at most {ARRAY_BYTES} are read")
        return np.array(npy.mapped(file))


def _dtype(name: str | None) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name or "float64")


def parser(prog: str = "python -m kernels.sums") -> argparse.ArgumentParser:
    """The arguments of all commands."""
    top = Parser(prog=prog, description=__doc__)
    add_version(top)
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    shown = commands.add_parser(
        "list", help="every way of adding numbers, with its guarantee and the reason (default)"
    )
    add_json(shown)
    add_loudness(shown, "without the reasons", "also the parameters of each variant")

    shape = Parser(add_help=False)
    group = shape.add_argument_group("launch shape (of the orders with thread blocks)")
    group.add_argument(
        "--block",
        type=Number(32, 1024),
        help=f"threads of a block: 32, 64, ..., 1024 (default: {launch.BLOCK})",
    )
    group.add_argument(
        "--items", type=COUNTS, help=f"elements per thread, at least: %(type)s (default: {launch.ITEMS})"
    )
    group.add_argument("--grid", type=COUNTS, help=f"blocks, at most: %(type)s (default: {launch.GRID})")

    tree = commands.add_parser(
        "tree",
        parents=[shape],
        help="the order in which a variant adds, discovered from its results alone",
        description="Discovers the order in which a variant adds n terms from its results alone, and compares it with "
        "the declared order. Prints an expression for few terms and an outline for many, which shows equal subtrees "
        "once. Exit code 3: the discovered order is not the declared one.",
    )
    tree.add_argument("variant", help="name of an order: see `list`")
    tree.add_argument("-n", type=TERMS, default=12, help="terms: %(type)s (default: 12)")
    tree.add_argument("--operation", choices=("sum", "dot"), default="sum")
    tree.add_argument(
        "--backend", help="backend, where an order has several (default: the first that can run here)"
    )
    tree.add_argument("--dtype", choices=ACCUMULATORS, default="float64", help="type of the elements")
    tree.add_argument("--threads", type=THREADS, help="threads of OpenMP: %(type)s (default: 1)")
    tree.add_argument(
        "--seed", type=Number(0, SEEDS), help="seed of the emulated order of arrival: %(type)s (default: 0)"
    )
    tree.add_argument(
        "--resident",
        type=Number(0, COUNTS.most),
        help="units in flight at once in the emulation: %(type)s (default: 0, all)",
    )
    tree.add_argument(
        "--expression", action="store_true", help="print the full expression for any number of terms"
    )
    add_json(tree)
    add_loudness(tree, "the tree alone, unless it is not the declared one", "as --expression")

    data = Parser(add_help=False)
    data.add_argument("file", nargs="?", metavar="FILE.npy", help="a one-dimensional array")
    data.add_argument("--distribution", choices=DISTRIBUTIONS, help="random numbers in place of a file")
    data.add_argument(
        "-n", type=NUMBERS, default=100_000, help="count of random numbers: %(type)s (default: 100000)"
    )
    data.add_argument(
        "--seed", type=Number(0, SEEDS), default=0, help="seed of all random numbers: %(type)s (default: 0)"
    )
    data.add_argument(
        "--dtype", choices=ACCUMULATORS, help="type to convert to (default: the file's, or float64)"
    )

    search = commands.add_parser(
        "worst",
        parents=[data, shape],
        help="how far orders of arrival can drive an atomic sum",
        description="Searches for orders of arrival that drive the sum furthest down and up. The true worst case is at "
        "least as bad.",
    )
    search.add_argument(
        "--order",
        choices=emulated.UNITS,
        default="ao",
        help="ao: elements arrive; spa: partial sums of blocks",
    )
    search.add_argument(
        "--save", metavar="PREFIX", help="write both orders to PREFIX-lowest.npy, PREFIX-highest.npy"
    )

    add_json(search)
    add_loudness(search, "the table alone", "also how both orders begin")

    compared = commands.add_parser(
        "compare", parents=[data], help="one array by every variant: value, bits, distance from exact, time"
    )
    compared.add_argument("--threads", type=THREADS, help="threads of OpenMP: %(type)s (default: OpenMP's)")
    add_json(compared)
    add_loudness(compared, "the table alone, no progress", "also what cannot run here, and why")
    return top


@command_line
def main(argv: list[str] | None = None, prog: str = "python -m kernels.sums") -> int:
    """Runs one command; returns the exit code. `prog`: the words that the user typed before the command."""
    top = parser(prog)
    try:
        args = top.parse_args(argv)
        return COMMANDS[args.command or "list"](args, top.prog)
    except ValueError as error:  # ChoiceError is one; kernels raise others for wrong parameters
        print(f"{top.prog}: {error}", file=sys.stderr)
        return 2


def _list(args: argparse.Namespace, prog: str) -> int:
    if args.command and args.json:
        print(document(1, "kernels sums list", tables={"variants": entries()}))
    elif args.command:
        print(table(args.quiet, args.verbose))
    else:
        print(table())
    return 0


def _tree(args: argparse.Namespace, prog: str) -> int:
    variant = get(args.operation, args.variant, args.backend)
    known = tree_of(variant, args.n, _dtype(args.dtype), _taken(variant, _given(args)))
    if args.json:
        print(document(1, "kernels sums tree", **known.entry()))
    else:
        print(known.text(args.expression or args.verbose, args.quiet))
    return 0 if known.as_promised else 3


def _worst(args: argparse.Namespace, prog: str) -> int:
    x, source = numbers(args)
    terms, extremes = searched(args.order, x, args.seed, _given(args))
    files = save_orders(extremes, args.save) if args.save is not None else []
    if args.json:
        print(document(1, "kernels sums worst", order=args.order, source=source, terms=len(terms),
                       dtype=str(terms.dtype), together=emulated.UNITS[args.order], bound=extremes.bound,
                       tried=extremes.tried, tables={"sums": worst_rows(extremes)}, files=files))  # fmt: skip
        return 0
    print(worst_text(args.order, terms, source, extremes, args.quiet))
    if files:
        print(f"Orders of units, by index: {', '.join(files)}")
    if args.verbose:
        for which, extreme in (("lowest", extremes.lowest), ("highest", extremes.highest)):
            shown = " ".join(map(str, extreme.order[:WRITTEN_OUT].tolist()))
            print(f"{which}: units {shown}{' ...' if len(extreme.order) > WRITTEN_OUT else ''}")
    return 0


def _compare(args: argparse.Namespace, prog: str) -> int:
    x, source = numbers(args)
    if args.threads and args.threads > (own := cores()):
        print(
            f"{prog}: --threads {args.threads}: this process may use {own} core{'s' * (own > 1)}, so threads wait for "
            "each other and times say little",
            file=sys.stderr,
        )
    rows = compare(x, args.threads or 0, args.quiet)
    if args.json:
        print(document(1, "kernels sums compare", source=source, n=len(x), dtype=x.dtype.name,
                       exact=float(correct(x)), tables={"sums": rows}))  # fmt: skip
        return 0
    print(comparison(rows, x, source, args.quiet))
    if args.verbose:
        for v in variants("sum"):
            if reason := v.unavailable():
                print(f"Not here: {v.name} ({v.backend}): {reason}")
    return 0


def _given(args: argparse.Namespace) -> dict[str, Any]:
    return {p: value for p in PARAMETERS if (value := getattr(args, p, None)) is not None}


COMMANDS = {"list": _list, "tree": _tree, "worst": _worst, "compare": _compare}
