"""What the bits of an ordering depend on: test data, the verdict on observations, and the table.

An observation is the hash of a total or of a part of it, and how the total was made. Observations that agree in
everything but one property, such as the rank count, form a class. Two different hashes in one class show that the bits
depend on that property. `measuring` makes the observations under MPI.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from shlex import quote

import numpy as np

from kernels.allreduce.accumulate import ACCUMULATIONS
from kernels.allreduce.catalog import orderings
from kernels.allreduce.reduction import Reduction
from kernels.guarantees import LEVELS, ChoiceError

RUN, RANK, SIZE, PLACEMENT, COUNT = "run", "rank", "message size", "placement", "rank count"
PROPERTIES = (
    RUN,
    RANK,
    SIZE,
    PLACEMENT,
    COUNT,
)  # the columns of the table: properties on which bits may depend
INTEGERS = "sums of integers"  # no property: a correct sum of integers has one value

# Properties that bits must not depend on, by guarantee.
PROMISES = {
    "none": (INTEGERS,),
    "run": (INTEGERS, RUN, RANK),
    "layout": (INTEGERS, *PROPERTIES),
    "exact": (INTEGERS, *PROPERTIES),
}

BLOCKS = 24  # divided by 1, 2, 3, 4 and 8 ranks evenly, by 5 and 7 not
SIZES = (1, 2, 3, 4, 5, 7, 8)
LENGTHS = ("0", "1", "p-1", "p", "5", "1000", "100003")
LONGEST = 10**8  # most elements of a vector; every rank makes all of them
SEEDS = (1, 2)
DTYPES = ("float64", "float32", "int64")
SHORT = 1000  # longer vectors are tried with the first seed only
EXIT_BROKEN = 3


@dataclass(frozen=True, slots=True)
class Observation:
    """The hash of `part` of the total of n elements on p ranks, made as `how` says; `ordering` is a label."""

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
        """The class of an observation: all in it have equal bits unless these depend on the property."""
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


# Reductions


def every() -> list[str]:
    """Labels of all orderings, and of `direct` in the accumulations that have a guarantee of their own."""
    held = [f"direct in {name}" for name, a in ACCUMULATIONS.items() if a.guarantee]
    return [o.name for o in orderings()] + held


# Data


@lru_cache(maxsize=2 * BLOCKS)
def values(seed: int, block: int, n: int, dtype: str) -> np.ndarray:
    """The contribution of a block, (n,): numbers whose sums in another order often have other bits.

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
    """Powers of two for n elements, from 2**-30 to 2**30: like different quantities in one vector."""
    if dtype == "int64":
        return np.ones(n, np.int64)
    return np.ldexp(1.0, np.random.default_rng([seed, BLOCKS]).integers(-30, 31, n)).astype(dtype)


def assigned_blocks(count: int, size: int, seed: int | None = None) -> list[list[int]]:
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
    """{(ordering, property): two observations, on the fewest ranks and elements, that differ in bits}."""
    first: dict[tuple, Observation] = {}
    differing: dict[tuple[str, str], tuple[Observation, ...]] = {}
    for o in sorted(observations, key=lambda o: (o.p, o.n, o.seed)):
        before = first.setdefault(o.same(), o)
        if before.digest != o.digest:
            differing.setdefault((o.ordering, o.property), (before, o))
    return differing


def shown(name: str, differing: dict) -> str:
    """The strongest level whose promises all held; never `exact`, which also depends on rounding."""
    levels = [level for level in LEVELS[:3] if not any((name, p) in differing for p in PROMISES[level])]
    return levels[-1] if levels else "less than none"


def broken(tried: Sequence[Reduction], differing: dict) -> list[str]:
    """A sentence for each broken promise, with the command that shows it again."""
    return [
        f"ordering {r.label!r} is declared {r.guarantee!r}, but {sentence(*differing[r.label, p])}"
        for r in tried
        for p in PROMISES[r.guarantee]
        if (r.label, p) in differing
    ]


def sentence(one: Observation, other: Observation) -> str:
    """A counterexample, and the command that shows it again."""
    sizes = ",".join(map(str, sorted({one.p, other.p})))
    lengths = ",".join(map(str, sorted({one.n, other.n})))
    depends = "gives wrong sums of integers" if one.property == INTEGERS else f"depends on the {one.property}"
    return (
        f"{depends}: {one.dtype}, seed {one.seed}, {one.part}: p {one.p}, n {one.n}, {one.how}, and "
        f"p {other.p}, n {other.n}, {other.how}, differ in bits (--orderings {quote(one.ordering)} --dtype {one.dtype} "
        f"--seeds {one.seed} --ranks {sizes} --lengths {lengths})"
    )


def stronger(tried: Sequence[Reduction], differing: dict) -> list[str]:
    """Sentences about orderings that kept more than they declare, in these trials."""
    return [
        f"{r.label} (declared {r.guarantee}) shows {shown(r.label, differing)}"
        for r in tried
        if (level := shown(r.label, differing)) in LEVELS and LEVELS.index(level) > LEVELS.index(r.guarantee)
    ]


# Table


def table(tried: Sequence[Reduction], differing: dict, caption: str) -> str:
    """The caption and a Markdown table: a row per ordering, `yes` where the bits depended on the column."""
    first, *others = PROPERTIES
    rows = [["ordering", "declared", f"depends on {first}", *(f"on {other}" for other in others)]]
    rows += [
        [f"`{r.label}`", r.guarantee, *("yes" if (r.label, p) in differing else "no" for p in PROPERTIES)]
        for r in tried
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rows.insert(1, ["-" * width for width in widths])
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows]
    return "\n".join([caption, "", *lines])


def library_key(version: str) -> str:
    """The library in the marker of its table: `mpich`, `openmpi`, ... from its version text."""
    return re.sub(r"[^a-z]", "", re.split(r"\s+(?:version|v?\d)", version.lower())[0])


def replaced(text: str, library: str, content: str) -> str:
    """`text` with `content` between the markers of a library. Raises ChoiceError if there are none."""
    begin, end = f"<!-- properties:{library} -->", f"<!-- /properties:{library} -->"
    before, old, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (old and closed):
        raise ChoiceError(f"no place for the table: write {begin} and {end} into the file, a line each")
    return f"{before}{begin}\n{content}\n{end}{after}"
