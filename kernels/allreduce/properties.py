"""What the bits of an ordering depend on: the data it is tried on, the verdict on what was observed, the table.

An observation is the hash of (a part of) a total, and how it came about. Observations that a property says are equal
form a class; two different hashes in one class are a counterexample. `measuring` makes the observations under MPI.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import numpy as np

from kernels.allreduce.catalog import Ordering, get, orderings
from kernels.allreduce.command import numbers
from kernels.arguments import cut
from kernels.guarantees import LEVELS, ChoiceError, known

RUN, RANKS, SIZE, PLACEMENT, COUNT = "run to run", "all ranks", "message size", "placement", "rank count"
PROPERTIES = (RUN, RANKS, SIZE, PLACEMENT, COUNT)  # the columns of the table
INTEGERS = "sums of integers"  # no property of an order, but of a correct sum

# What a guarantee promises of these. The length of the message is in no promise: fixed point, which keeps all others,
# has one unit for the whole vector.
PROMISES = {
    "none": (INTEGERS,),
    "run": (INTEGERS, RUN, RANKS),
    "layout": (INTEGERS, RUN, RANKS, PLACEMENT, COUNT),
    "exact": (INTEGERS, *PROPERTIES),
}

BLOCKS = 24  # divided by 1, 2, 3, 4 and 8 ranks evenly, by 5 and 7 not
SIZES = (1, 2, 3, 4, 5, 7, 8)
LENGTHS = ("0", "1", "p-1", "p", "5", "1000", "100003")
LONGEST = 10**8  # elements of a vector, at most, which every rank makes
SEEDS = (1, 2)
DTYPES = ("float64", "float32", "int64")
SHORT = 1000  # longer vectors are tried with the first seed only
EXIT_BROKEN = 3


@dataclass(frozen=True, slots=True)
class Observation:
    """The hash of `part` of the total of n elements on p ranks, made as `how` says."""

    ordering: str
    property: str
    dtype: str
    seed: int
    p: int
    n: int
    part: str
    how: str
    digest: bytes

    def same(self) -> tuple:
        """What observations have in common whose bits are equal if the ordering has the property."""
        return (
            self.ordering,
            self.property,
            self.dtype,
            self.seed,
            self.part,
            None if self.property == COUNT else self.p,
            None if self.property == SIZE else self.n,
        )


def digest(total: np.ndarray) -> bytes:
    """128-bit hash of the bits."""
    return blake2b(total.tobytes(), digest_size=16).digest()


# Data


@lru_cache(maxsize=2 * BLOCKS)
def values(seed: int, block: int, n: int, dtype: str) -> np.ndarray:
    """The contribution of a block, (n,): numbers where another order often has other bits.

    Magnitudes and signs are mixed. Integers are so small that 2**7 blocks do not overflow. Shorter vectors are the
    beginning of longer ones. The array is shared and read-only.
    """
    random = np.random.default_rng([seed, block])
    if dtype == "int64":
        x = random.integers(-(2**55), 2**55, n)
    else:
        magnitude = 10.0 ** np.random.default_rng([seed, block, 1]).integers(-1, 2, n)
        x = (random.standard_normal(n) * magnitude).astype(dtype)
    x.setflags(write=False)
    return x


@lru_cache(maxsize=4)
def scales(seed: int, n: int, dtype: str) -> np.ndarray:
    """Powers of two for n elements, from 2**-30 to 2**30: as quantities differ that are fused into one vector."""
    if dtype == "int64":
        return np.ones(n, np.int64)
    return np.ldexp(1.0, np.random.default_rng([seed, BLOCKS]).integers(-30, 31, n)).astype(dtype)


def deal(count: int, size: int, seed: int | None = None) -> list[list[int]]:
    """The blocks of every rank, ascending: in order and evenly, or at random, with at least one if there are enough."""
    if seed is None:
        owners = np.arange(count) * size // count
    else:
        random = np.random.default_rng([seed, size])
        owners = random.permutation(
            [*range(min(size, count)), *random.integers(0, size, max(count - size, 0))]
        )
    return [np.flatnonzero(owners == rank).tolist() for rank in range(size)]


def lengths_at(lengths: Iterable[str], p: int) -> list[int]:
    """The lengths in numbers, ascending: `p` and `p-1` depend on the number of ranks."""
    return sorted({p - 1 if n == "p-1" else p if n == "p" else int(n) for n in lengths})


def packed(sizes: Iterable[int], room: int) -> list[list[int]]:
    """Sizes in groups that each fit into `room`, the largest first."""
    groups: list[list[int]] = []
    for size in sorted(set(sizes), reverse=True):
        fitting = next((group for group in groups if sum(group) + size <= room), None)
        if fitting is None:
            groups.append([size])
        else:
            fitting.append(size)
    return groups


# Verdict


def counterexamples(observations: Iterable[Observation]) -> dict[tuple[str, str], tuple[Observation, ...]]:
    """By ordering and property the two observations, on the fewest ranks and elements, that disprove it."""
    first: dict[tuple, Observation] = {}
    found: dict[tuple[str, str], tuple[Observation, ...]] = {}
    for o in sorted(observations, key=lambda o: (o.p, o.n, o.seed)):
        before = first.setdefault(o.same(), o)
        if before.digest != o.digest:
            found.setdefault((o.ordering, o.property), (before, o))
    return found


def shown(name: str, found: dict) -> str:
    """The strongest level whose promises were all kept; not `exact`, which rounding decides as well."""
    levels = [level for level in LEVELS[:3] if not any((name, p) in found for p in PROMISES[level])]
    return levels[-1] if levels else "less than none"


def broken(tried: Sequence[Ordering], found: dict) -> list[str]:
    """A sentence for each promise that was not kept, saying how to see it again."""
    return [
        f"ordering {o.name!r} is declared {o.guarantee!r}, but {sentence(*found[o.name, p])}"
        for o in tried
        for p in PROMISES[o.guarantee]
        if (o.name, p) in found
    ]


def sentence(one: Observation, other: Observation) -> str:
    """A counterexample, and the command that shows it again."""
    sizes = ",".join(map(str, sorted({one.p, other.p})))
    lengths = ",".join(map(str, sorted({one.n, other.n})))
    return (
        f"fails {one.property!r}: {one.dtype}, seed {one.seed}, {one.part}: p {one.p}, n {one.n}, {one.how}, and "
        f"p {other.p}, n {other.n}, {other.how}, differ in bits (--orderings {one.ordering} --dtype {one.dtype} "
        f"--seeds {one.seed} --ranks {sizes} --lengths {lengths})"
    )


def stronger(tried: Sequence[Ordering], found: dict) -> list[str]:
    """Orderings that kept more than they declare, on what they were tried on."""
    return [
        f"{o.name} (declared {o.guarantee}) shows {shown(o.name, found)}"
        for o in tried
        if (level := shown(o.name, found)) in LEVELS and LEVELS.index(level) > LEVELS.index(o.guarantee)
    ]


# Table


def table(tried: Sequence[Ordering], found: dict, caption: str) -> str:
    """The caption and a Markdown table: one row per ordering, `no` where there was a counterexample."""
    rows = [["ordering", "declared", *PROPERTIES]]
    rows += [
        [f"`{o.name}`", o.guarantee, *("no" if (o.name, p) in found else "yes" for p in PROPERTIES)]
        for o in tried
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rows.insert(1, ["-" * width for width in widths])
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows]
    return "\n".join([caption, "", *lines])


def library_key(version: str) -> str:
    """The library in the marker of its table: `mpich`, `openmpi`, ... from what it says of its version."""
    return re.sub(r"[^a-z]", "", re.split(r"\s+(?:version|v?\d)", version.lower())[0])


def replaced(text: str, library: str, content: str) -> str:
    """`text` with `content` between the markers of a library. ChoiceError where there are none."""
    begin, end = f"<!-- properties:{library} -->", f"<!-- /properties:{library} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ChoiceError(f"no place for the table: write {begin} and {end} into the file, a line each")
    return f"{before}{begin}\n{content}\n{end}{after}"


# Command


def register(commands) -> None:
    """Add `properties` to the subcommands."""
    parser = commands.add_parser(
        "properties",
        help="measure under mpirun what the bits of every ordering depend on",
        description="Measures what the bits of orderings depend on, on sub-communicators of the ranks it is launched "
        f"with, and compares with what they declare. Exit code {EXIT_BROKEN}: a promise was not kept.",
    )
    parser.add_argument("--orderings", help="names, separated by commas (default: all)")
    parser.add_argument("--dtype", help=f"of {', '.join(DTYPES)} (default: all)")
    parser.add_argument("--seeds", type=numbers, metavar="1,2", help="of the data (default: 1,2)")
    parser.add_argument(
        "--ranks", type=numbers, metavar="2,8", help="(default: those of 1,2,3,4,5,7,8 that fit)"
    )
    parser.add_argument("--lengths", help=f"of the vector (default: {','.join(LENGTHS)})")
    parser.add_argument("--show", action="store_true", help="a counterexample for every `no`")
    parser.add_argument("--write", metavar="FILE", help="also put the table between this library's markers")
    parser.set_defaults(run=run)


def run(args) -> int:
    """Measure, print on rank 0, and return the exit code, on every rank the same. Collective over all ranks."""
    from mpi4py import MPI  # starts MPI

    from kernels.allreduce.measuring import caption, measure, version

    world = MPI.COMM_WORLD
    try:
        choice = understood(args, version(), world.size)
    except ChoiceError:
        if world.rank:
            return 2
        raise  # one message is enough
    try:
        observations = measure(world, *choice)
        code = report(args, choice[0], version(), caption(*choice), observations) if world.rank == 0 else None
        return world.bcast(code, 0)
    except BaseException:  # the other ranks may be anywhere, and would wait for this one
        traceback.print_exc()
        sys.stderr.flush()
        world.Abort(1)
        raise


def understood(args, version: str, size: int) -> tuple:
    """Orderings, dtypes, seeds, lengths and numbers of ranks to try. ChoiceError for what cannot be."""
    if args.write:
        if args.orderings or args.dtype or args.seeds or args.ranks or args.lengths:
            raise ChoiceError("--write records the whole measurement: leave out what reduces it")
        write(args.write, version, None)
    tried = [get(name) for name in args.orderings.split(",")] if args.orderings else orderings()
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
    """Put the table between the markers of its library; without content only see that there are any."""
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


def report(args, tried: Sequence[Ordering], version: str, caption: str, observations) -> int:
    """Print the table and the verdict; write the table where asked to. The exit code."""
    found = counterexamples(observations)
    text = table(tried, found, caption)
    print(text, end="\n\n")
    if args.write:
        write(args.write, version, text)
    if args.show:
        for pair in found.values():
            print(f"{pair[0].ordering} {sentence(*pair)}")
    for line in stronger(tried, found):
        print(f"stronger than declared, as far as tried: {line}")
    mistakes = broken(tried, found)
    for line in mistakes:
        print(line, file=sys.stderr)
    print(f"PROPERTIES: {'FAIL' if mistakes else 'PASS'}")
    return EXIT_BROKEN if mistakes else 0
