"""Random programs: the bug or rounding, the language, the size, and the difference between the two runs."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

BUG, ROUNDING = "bug", "rounding"
C, FORTRAN, PYTHON, RECORDED = "C", "Fortran", "mpi4py", "fpna.record"

# The difference between the two runs of a program: the number of ranks, none (each launch differs), an environment, or
# another binary.
RANKS, LAUNCHES, ORDER, THREADS, CONTRACTION = (
    "ranks", "launches", "order", "threads", "contraction"
)  # fmt: skip
EVERYWHERE = (C, FORTRAN, PYTHON, RECORDED)
IN_PYTHON = (PYTHON, RECORDED)
KINDS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "local-index": (BUG, RANKS, EVERYWHERE),
    "forgotten-halo": (BUG, RANKS, EVERYWHERE),
    "rank-seed": (BUG, RANKS, (C, *IN_PYTHON)),
    "integer-division": (BUG, RANKS, EVERYWHERE),
    "off-by-one": (BUG, RANKS, EVERYWHERE),
    "doubled": (BUG, RANKS, EVERYWHERE),
    "lost": (BUG, RANKS, EVERYWHERE),
    "wrong-root": (BUG, RANKS, EVERYWHERE),
    "float-index": (BUG, RANKS, EVERYWHERE),
    "stale-buffer": (BUG, RANKS, EVERYWHERE),
    "uninitialised": (BUG, LAUNCHES, (C, *IN_PYTHON)),
    "race": (BUG, LAUNCHES, (C,)),
    "early-read": (BUG, ORDER, (C,)),
    "wildcard": (BUG, ORDER, (C, PYTHON)),
    "order": (ROUNDING, ORDER, (C, PYTHON)),
    "grouping": (ROUNDING, RANKS, EVERYWHERE),
    "cancellation": (ROUNDING, RANKS, EVERYWHERE),
    "chaos": (ROUNDING, RANKS, EVERYWHERE),
    "solver": (ROUNDING, RANKS, (C,)),
    "threads": (ROUNDING, THREADS, (C,)),
    "chaos-threads": (ROUNDING, THREADS, (C,)),
    "arrival": (ROUNDING, ORDER, (C, PYTHON)),
    "contraction": (ROUNDING, CONTRACTION, (C,)),
}
PAIRS = ((2, 4), (2, 3), (3, 4), (4, 2))
LEAST_SIZE = 50  # a bug changes the first sum by a fraction of about 2^-1 to 2^-50
# The approximate fraction at full strength: most bugs affect one point of n.
OF_A_POINT = (
    "local-index",
    "rank-seed",
    "integer-division",
    "off-by-one",
    "doubled",
    "lost",
    "uninitialised",
)
SHARES = {"forgotten-halo": 1e-6, "stale-buffer": 1e-4, "early-read": 2e-4}


@dataclass(frozen=True)
class Side:
    """One run: its number of ranks, environment, and binary (with contraction or without)."""

    ranks: int
    environment: dict[str, str] = field(default_factory=dict)
    contracted: bool = False


@dataclass(frozen=True)
class Drawn:
    """A program with its arguments, and its two runs. `exponent`: a bug changes the first sum by a fraction of about
    2^-exponent."""

    kind: str
    what: str
    language: str
    arguments: tuple[str, ...]
    exponent: int
    a: Side
    b: Side


def draw(seed: int, what: str) -> Drawn:
    """The program of this seed and class `what`: with a bug, or with rounding alone."""
    numbers = random.Random(f"{what} {seed}")
    kind = numbers.choice([name for name, (its, *_) in KINDS.items() if its == what])
    _, how, languages = KINDS[kind]
    language = numbers.choice(languages)
    exponent = numbers.randint(1, LEAST_SIZE)
    a, b = _sides(how, numbers)
    n, steps, fields = (
        numbers.choice(_points(kind, a.ranks, b.ranks)),
        numbers.choice((5, 12, 40)),
        numbers.choice((1, 2, 3, 7)),
    )
    if kind == "solver":
        steps = numbers.choice((20, 60))
    if kind in ("chaos", "chaos-threads"):
        steps = numbers.choice((12, 80))
    phase = numbers.random()
    share = 1 / n if kind in OF_A_POINT else SHARES.get(kind, 1.0)
    strength = min(1.0, 2.0**-exponent / share)
    arguments = (kind, repr(strength), str(n), str(steps), str(fields), f"{phase:.3f}")
    return Drawn(kind, what, language, arguments, round(-math.log2(strength * share)), a, b)


def _points(kind: str, one: int, other: int) -> tuple[int, ...]:
    """The possible numbers of points; an integer division must lose different points on the two numbers of ranks."""
    return tuple(n for n in (203, 1001, 4099) if kind != "integer-division" or n % one != n % other)


def _sides(how: str, numbers: random.Random) -> tuple[Side, Side]:
    ranks = numbers.choice((3, 4))
    if how == RANKS:
        a, b = numbers.choice(PAIRS)
        return Side(a), Side(b)
    if how == ORDER:
        return Side(4, {"ORDER": "1"}), Side(4, {"ORDER": "3"})
    if how == THREADS:
        return Side(2, {"OMP_NUM_THREADS": "2"}), Side(2, {"OMP_NUM_THREADS": "3"})
    if how == CONTRACTION:
        return Side(ranks), Side(ranks, contracted=True)
    return Side(ranks), Side(ranks)
