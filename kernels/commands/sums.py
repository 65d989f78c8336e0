"""`python -m kernels.sums`: the ways of adding numbers, their trees, worst orders of arrival, and what they give."""

from __future__ import annotations

import argparse
import os
import stat
import sys
import textwrap

import ml_dtypes
import numpy as np

from kernels import VERSION, npy
from kernels.commands.parser import Number, Parser
from kernels.guarantees import ChoiceError, meets
from kernels.ranges import SEEDS
from kernels.registry import Variant, get, operations, variants
from kernels.sums import emulated, launch, worst
from kernels.sums.black_box import black_box
from kernels.sums.compare import compare
from kernels.sums.discover import DoesNotRepeat, NoOrder, NotATree, discover
from kernels.sums.elements import ACCUMULATORS, accumulator, vector
from kernels.sums.orders import ORDERS
from kernels.sums.outline import outline
from kernels.sums.trees import NO_TREE, of_variant
from kernels.threads import MOST as MOST_THREADS
from kernels.threads import cores
from kernels.tree import depth, expression, same

TERMS = Number(1, 2**16)  # of a tree that is discovered: takes seconds, and memory for every term
NUMBERS = Number(1, 10**8)  # of an array that is drawn
ARRAY_BYTES = 2**33  # of one that is read
COUNTS = Number(1, 2**31 - 1)
THREADS = Number(1, MOST_THREADS)
WRITTEN_OUT = 16  # terms, at most, for a tree to be printed as an expression
DISTRIBUTIONS = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "uniform": lambda rng, n: rng.random(n),
    "centred": lambda rng, n: rng.random(n) - 0.5,
    "lognormal": lambda rng, n: rng.lognormal(0.0, 2.0, n),
}
PARAMETERS = ("block", "items", "grid", "threads", "seed", "resident")  # of variants, beside the data


# ---- list


def _operations() -> list[str]:
    """Those of this package: others may be registered beside."""
    return [name for name in ("sum", "dot", "norm") if name in operations()]


def table() -> str:
    """What can be added how, with which promise, and what cannot run here."""
    lines, absent = [], {}
    for operation in _operations():
        lines += [f"{operation:<15}{'backend':<11}{'promises':<10}{'here':<6}why"]
        for v in variants(operation):
            reason = v.unavailable()
            if reason:
                absent[v.backend] = reason
            why = textwrap.wrap(v.why, 78)
            lines.append(
                f"{v.name:<15}{v.backend:<11}{v.guarantee:<10}{'no' if reason else 'yes':<6}{why[0]}"
            )
            lines += [f"{'':<42}{more}" for more in why[1:]]
        lines.append("")
    lines += [f"Not here: {backend}: {reason}" for backend, reason in absent.items()]
    return "\n".join(lines).rstrip()


def markdown() -> str:
    """One row per order: its promise, the backends that have it for each operation, and why."""
    columns = ["order", "promises", *_operations(), "why"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for order in ORDERS.values():
        backends = [
            ", ".join(v.backend for v in variants(operation) if v.name == order.name)
            for operation in _operations()
        ]
        if any(backends):
            lines.append(f"| `{order.name}` | {order.guarantee} | {' | '.join(backends)} | {order.why} |")
    return "\n".join(lines)


# ---- tree


def tree_text(variant: Variant, n: int, dtype: np.dtype, given: dict, in_full: bool) -> tuple[str, bool]:
    """The tree that is discovered, and whether it is what the variant promises and declares."""
    parameters = _taken(variant, {"threads": 1} | given if "threads" in variant.parameters else given)
    shape = "".join(f", {name} {value}" for name, value in parameters.items())
    head = f"{variant.operation} {variant.name!r} ({variant.backend}) of {n} {dtype.name}{shape}"
    try:
        tree = discover(black_box(variant, **parameters), n, dtype, accumulator(dtype))
    except NotATree as error:
        lines = [f"{head}: no tree", *textwrap.wrap(f"{error}.", 118)]
        if not meets(variant.guarantee, "run"):
            lines.append(f"Nothing else is promised: {variant.why}.")
        library = variant.name in NO_TREE and not isinstance(error, DoesNotRepeat)  # it may well be no tree
        return "\n".join(lines), library or not meets(variant.guarantee, "run")
    if isinstance(tree, NoOrder):
        return f"{head}: {tree.kind}\n{_without_order(variant, tree)}", True
    lines = [f"{head}: depth {depth(tree)}, so off by at most {depth(tree)} u sum|x|"]
    lines += [expression(tree)] if in_full or n <= WRITTEN_OUT else outline(tree)
    stated = of_variant(variant, n, **parameters)
    if stated is None:
        reason = NO_TREE.get(variant.name, "the hardware decides")
        return "\n".join([*lines, f"None is declared: {reason}."]), True
    agrees = same(tree, stated)
    verdict = (
        "This is the tree that the order declares." if agrees else "NOT THE TREE that the order declares."
    )
    return "\n".join([*lines, verdict]), agrees


def _without_order(variant: Variant, reason: NoOrder) -> str:
    if reason.kind == "order-free":
        text = "Every permutation gives the same bits: no order shows"
    else:
        text = "Errors are carried along, so that it is more accurate than a tree, but permutations show in the bits"
    parts = [part for part in reason.parts if isinstance(part, tuple)]
    lines = textwrap.wrap(f"{text}. {variant.why[0].upper()}{variant.why[1:]}.", 118)
    if parts:
        what = (
            "Its main sum"
            if len(reason.parts) == 1
            else f"So are combined {len(reason.parts)} partial sums; the first"
        )
        lines += [f"{what}:", *(f"  {line}" for line in outline(parts[0]))]
    return "\n".join(lines)


def _taken(variant: Variant, given: dict) -> dict:
    """What is given on the command line, if the variant takes it."""
    for name in given:
        if name not in variant.parameters:
            known = ", ".join(f"--{p}" for p in variant.parameters if p in PARAMETERS) or "none"
            raise ChoiceError(
                f"--{name} is not for {variant.name!r} ({variant.backend}), which takes: {known}"
            )
    return given


# ---- worst


def worst_text(name: str, x: np.ndarray, source: str, seed: int, given: dict, save: str | None) -> str:
    """How far orders of arrival drive the sum, beside random orders, the exact value and the bound."""
    shape = {key: value for key, value in given.items() if key in ("block", "items", "grid")}
    if name == "ao" and shape:
        raise ChoiceError(
            f"--{next(iter(shape))} is not for 'ao', which adds elements one by one: choose --order spa"
        )
    terms, unit = emulated.units(name, x, **shape), emulated.UNITS[name]
    extremes = worst.search(terms, unit, seed)
    what = "partial sums" if name == "spa" else "elements"
    together = f", {unit} arriving together" if unit > 1 else ""
    rows = [
        ("exact", extremes.exact, ""),
        ("lowest found", extremes.lowest.value, extremes.lowest.method),
        ("lowest of random", extremes.random.min(), f"{len(extremes.random)} orders"),
        ("highest of random", extremes.random.max(), f"{len(extremes.random)} orders"),
        ("highest found", extremes.highest.value, extremes.highest.method),
    ]
    lines = [
        f"order of arrival {name!r}: {len(terms)} {what} of type {terms.dtype}{together} ({source})",
        f"{'':<19}{'sum':>25}{'off by':>12}{'of the bound':>15}   how",
    ]
    for title, value, how in rows:
        error = float(value) - extremes.exact
        share = f"{100 * abs(error) / extremes.bound:.2g} %" if extremes.bound else "-"
        lines.append(f"{title:<19}{float(value)!r:>25}{error:>12.2e}{share:>15}   {how}".rstrip())
    lines.append(f"{'bound':<19}{'':>25}{extremes.bound:>12.2e}{'':>15}   (n - 1) u sum|x|, for any order")
    lines.append(f"{extremes.tried} sums tried: the true extremes are at least as far as those found.")
    if save is not None:
        try:
            for which, extreme in (("lowest", extremes.lowest), ("highest", extremes.highest)):
                np.save(f"{save}-{which}.npy", extreme.order)
        except OSError as error:
            raise ChoiceError(f"--save {save}: {error}") from None
        lines.append(f"Orders of units, by index: {save}-lowest.npy, {save}-highest.npy")
    return "\n".join(lines)


# ---- command line


def numbers(args: argparse.Namespace) -> tuple[np.ndarray, str]:
    """The array to add, and where it is from."""
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
            f"{args.file} is no one-dimensional array of numbers from numpy.save: {error}"
        ) from None


def _read(path: str) -> np.ndarray:
    """The array in a regular file: opening a fifo waits for ever, and reading a device never ends."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no regular file")
        if status.st_size > ARRAY_BYTES:
            raise ValueError(f"it has {status.st_size} bytes, and at most {ARRAY_BYTES} are read")
        return np.array(npy.mapped(file))


def _dtype(name: str | None) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name or "float64")


def parser(prog: str = "python -m kernels.sums") -> argparse.ArgumentParser:
    """The arguments of all commands."""
    top = Parser(prog=prog, description=__doc__)
    top.add_argument("--version", action="version", version=VERSION)
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    shown = commands.add_parser(
        "list", help="every way of adding numbers, what it promises and why (default)"
    )
    shown.add_argument("--markdown", action="store_true", help="as the table of docs/sums.md")

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
        help="the order in which a variant adds, found from its values alone",
        description="Finds the order in which a variant adds n terms, from nothing but the values it returns, and "
        "compares it with the order that it declares. Prints an expression for few terms, an outline for many, "
        "where what is alike is shown once. Exit code 3: it is not what the variant declares.",
    )
    tree.add_argument("variant", help="name of an order: see `list`")
    tree.add_argument("-n", type=TERMS, default=12, help="terms: %(type)s (default: 12)")
    tree.add_argument("--operation", choices=("sum", "dot"), default="sum")
    tree.add_argument("--backend", help="where an order has several (default: the first that can run here)")
    tree.add_argument("--dtype", choices=ACCUMULATORS, default="float64", help="of the elements")
    tree.add_argument("--threads", type=THREADS, help="of OpenMP: %(type)s (default: 1)")
    tree.add_argument(
        "--seed", type=Number(0, SEEDS), help="of the emulated order of arrival: %(type)s (default: 0)"
    )
    tree.add_argument(
        "--resident",
        type=Number(0, COUNTS.most),
        help="units in flight at once in the emulation: %(type)s (default: 0, all)",
    )
    tree.add_argument("--expression", action="store_true", help="in full, however many terms")

    data = Parser(add_help=False)
    data.add_argument("file", nargs="?", metavar="FILE.npy", help="a one-dimensional array")
    data.add_argument("--distribution", choices=DISTRIBUTIONS, help="random numbers in place of a file")
    data.add_argument(
        "-n", type=NUMBERS, default=100_000, help="how many of them: %(type)s (default: 100000)"
    )
    data.add_argument(
        "--seed", type=Number(0, SEEDS), default=0, help="of all that is random: %(type)s (default: 0)"
    )
    data.add_argument("--dtype", choices=ACCUMULATORS, help="to convert to (default: the file's, or float64)")

    search = commands.add_parser(
        "worst",
        parents=[data, shape],
        help="how far orders of arrival can drive an atomic sum",
        description="Searches orders of arrival that drive the sum furthest down and up. What is found is a lower "
        "bound of the true worst case.",
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

    compared = commands.add_parser(
        "compare", parents=[data], help="one array by every variant: value, bits, distance from exact, time"
    )
    compared.add_argument("--threads", type=THREADS, help="of OpenMP: %(type)s (default: OpenMP's)")
    return top


def main(argv: list[str] | None = None, prog: str = "python -m kernels.sums") -> int:
    """Run one command; returns the exit code. `prog` is what the user typed before the command."""
    top = parser(prog)
    try:
        args = top.parse_args(argv)
        given = {p: getattr(args, p) for p in PARAMETERS if getattr(args, p, None) is not None}
        if args.command in (None, "list"):
            print(markdown() if args.command and args.markdown else table())
            return 0
        if args.command == "tree":
            variant = get(args.operation, args.variant, args.backend)
            text, as_promised = tree_text(variant, args.n, _dtype(args.dtype), given, args.expression)
            print(text)
            return 0 if as_promised else 3
        x, source = numbers(args)
        if args.command == "worst":
            print(worst_text(args.order, x, source, args.seed, given, args.save))
        else:
            if args.threads and args.threads > (own := cores()):
                print(
                    f"{top.prog}: --threads {args.threads}: this process may use {own} "
                    f"core{'s' * (own > 1)}, so threads wait for each other and times say little",
                    file=sys.stderr,
                )
            print(compare(x, source, args.threads or 0))
    except ValueError as error:  # ChoiceError is one, and what kernels say of wrong parameters
        print(f"{top.prog}: {error}", file=sys.stderr)
        return 2
    return 0
