"""`properties`: measures under mpirun what the bits of every ordering depend on, and compares with its declaration."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from kernels.allreduce.instruments.properties import (
    DTYPES,
    EXIT_BROKEN,
    LENGTHS,
    LONGEST,
    PROPERTIES,
    SEEDS,
    SIZES,
    broken,
    counterexamples,
    every,
    library_key,
    replaced,
    sentence,
    shown,
    stronger,
    table,
)
from kernels.allreduce.reduction import Reduction, labels
from kernels.as_json import Document, columns, document, rows
from kernels.commands.choice import numbers
from kernels.commands.options import add_json, add_loudness
from kernels.guarantees import ChoiceError, known
from kernels.ranges import cut

DOCUMENTS = {
    "kernels allreduce properties": Document(
        columns("""
            verdict | text | `PASS` or `FAIL`
            measured | text | MPI library, ranks, types, lengths and seeds of the measurement
            broken | list of text | broken promises
        """),
        (
            rows(
                "tables.orderings",
                "a row per ordering",
                """
            ordering | text
            guarantee | text | declared
            shown | text | guarantee that the measurement supports
            depends_on counterexamples | list of text
            """,
            ),
        ),
    ),
}


def register(commands) -> None:
    """Adds the command `properties`."""
    parser = commands.add_parser(
        "properties",
        help="measure under mpirun what the bits of every ordering depend on",
        description="Measures what the bits of orderings depend on, on sub-communicators of the launched ranks, and "
        f"compares with the declared guarantees. Exit code {EXIT_BROKEN}: an ordering broke its promise.",
    )
    parser.add_argument(
        "--orderings",
        help="names, with or without accumulation, separated by commas: ring,direct in exact (default: all)",
    )
    parser.add_argument("--dtype", help=f"of {', '.join(DTYPES)} (default: all)")
    parser.add_argument("--seeds", type=numbers, metavar="1,2", help="seeds of the data (default: 1,2)")
    parser.add_argument(
        "--ranks",
        type=numbers,
        metavar="2,8",
        help="numbers of ranks (default: those of 1,2,3,4,5,7,8 that fit)",
    )
    parser.add_argument("--lengths", help=f"lengths of the vector (default: {','.join(LENGTHS)})")
    parser.add_argument("--show", action="store_true", help="print two different sums for every `yes`")
    parser.add_argument(
        "--write",
        metavar="FILE",
        help="also write the table into this file, between the markers of this MPI library",
    )
    add_json(parser)
    add_loudness(parser, "verdict and broken promises alone, no progress", "as --show")
    parser.set_defaults(run=run)


def run(args) -> int:
    """Measures, prints on rank 0, and returns the same exit code on every rank. Collective over all ranks."""
    from mpi4py import MPI  # starts MPI

    from kernels.allreduce.instruments.measuring import caption, measure, version

    world = MPI.COMM_WORLD
    try:
        choice = understood(args, version(), world.size)
    except ChoiceError:
        if world.rank:
            return 2
        raise  # one message is enough
    try:
        tried, dtypes, seeds, lengths, sizes = choice
        observations = measure(world, tried, dtypes, seeds, lengths, sizes, quiet=args.quiet)
        code = report(args, choice[0], version(), caption(*choice), observations) if world.rank == 0 else None
        return world.bcast(code, 0)
    except BaseException:  # the other ranks would wait for this one
        traceback.print_exc()
        sys.stderr.flush()
        world.Abort(1)
        raise


def understood(args, version: str, size: int) -> tuple:
    """Orderings, dtypes, seeds, lengths and numbers of ranks to try. Raises ChoiceError for impossible ones."""
    if args.write:
        if args.orderings or args.dtype or args.seeds or args.ranks or args.lengths:
            raise ChoiceError(
                "--write records the whole measurement: leave out --orderings, --dtype, --seeds, --ranks and --lengths"
            )
        write(args.write, version, None)
    tried = [Reduction.named(name) for name in (labels(args.orderings) if args.orderings else every())]
    dtypes = [known("dtype", dtype, DTYPES) for dtype in (args.dtype or ",".join(DTYPES)).split(",")]
    lengths = (args.lengths or ",".join(LENGTHS)).split(",")
    if not all(re.fullmatch(r"p-1|p|[0-9]{1,9}", n) and (n[0] == "p" or int(n) <= LONGEST) for n in lengths):
        raise ChoiceError(
            f"--lengths {cut(args.lengths)}: give numbers up to {LONGEST}, p or p-1, separated by commas"
        )
    if args.ranks and min(args.ranks) < 1:
        raise ChoiceError(f"--ranks {min(args.ranks)}: choose 1 or more")
    sizes = args.ranks or [p for p in SIZES if p <= size]
    if max(sizes) > size:
        raise ChoiceError(f"--ranks {max(sizes)}: there are {size} ranks; launch more by mpirun -n")
    return tried, dtypes, args.seeds or SEEDS, lengths, sizes


def write(file: str, version: str, content: str | None) -> None:
    """Writes `content` between the markers of the library `version`; for None only checks that the file has markers."""
    try:
        text = Path(file).read_text()
    except OSError as error:
        raise ChoiceError(f"--write {file}: {error.strerror}") from None
    try:
        text = replaced(text, library_key(version), content or "")
    except ChoiceError as error:
        raise ChoiceError(f"--write {file}: {error}") from None
    if content is not None:
        Path(file).write_text(text)


def report(args, tried: Sequence[Reduction], version: str, caption: str, observations) -> int:
    """Prints the table and the verdict, and writes the table if --write asks for it; returns the exit code."""
    differing = counterexamples(observations)
    text = table(tried, differing, caption)
    if args.write:
        write(args.write, version, text)
    mistakes = broken(tried, differing)
    for line in mistakes:
        print(line, file=sys.stderr)
    if args.json:
        print(_document(tried, differing, caption, mistakes))
        return EXIT_BROKEN if mistakes else 0
    if not args.quiet:
        print(text, end="\n\n")
        if args.show or args.verbose:
            for pair in differing.values():
                print(f"{pair[0].ordering} {sentence(*pair)}")
        for line in stronger(tried, differing):
            print(f"stronger than declared, as far as tried: {line}")
    print(f"PROPERTIES: {'FAIL' if mistakes else 'PASS'}")
    return EXIT_BROKEN if mistakes else 0


def _document(tried: Sequence[Reduction], differing: dict, caption: str, mistakes: list[str]) -> str:
    rows = [
        {
            "ordering": r.label,
            "guarantee": r.guarantee,
            "shown": shown(r.label, differing),
            "depends_on": [p for p in PROPERTIES if (r.label, p) in differing],
            "counterexamples": [
                sentence(*differing[r.label, p]) for p in PROPERTIES if (r.label, p) in differing
            ],
        }
        for r in tried
    ]
    return document(1, "kernels allreduce properties", verdict="FAIL" if mistakes else "PASS", measured=caption,
                    tables={"orderings": rows}, broken=mistakes)  # fmt: skip
