"""The language of vector updates: parses text to data for all backends.

    steps = STEP ; STEP ...             run in this order; a later step reads the new values
    STEP  = TARGET = TERM + TERM - ...  1 to 4 terms; TARGET and VECTOR are names of vectors
    TERM  = [NUMBER* | SCALAR*] VECTOR [* VECTOR]
    dots  = VECTOR.VECTOR VECTOR.VECTOR ...     of the vectors as the steps leave them

A name before a `*` that names no vector names a scalar. Terms and sums are evaluated from the left. Scalars and numbers
are first rounded to the vectors' type, then every product and every sum. A minus belongs to the number or scalar:
`r - alpha*s` is r + (-alpha)*s, `b - y` is b + (-1)*y.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite

MOST_TERMS = 4  # of a step: C++ has a kernel for each number of terms
NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
NAME = r"[A-Za-z_]\w*"
TERM = re.compile(rf"\s*([-+])?\s*({NUMBER}|{NAME})\s*((?:\*\s*{NAME}\s*)*)")
GRAMMAR = "TARGET = TERM + TERM - ... with TERM = [NUMBER* or SCALAR*] VECTOR [* VECTOR]"


@dataclass(frozen=True)
class Term:
    """(`by` * scalar) * vectors[0] * vectors[1]; scalar and second vector may be absent."""

    by: float  # the number, or the sign of the scalar
    scalar: str | None
    vectors: tuple[str, ...]

    @property
    def multiplications(self) -> int:
        return len(self.vectors) - 1 + (self.scalar is not None or abs(self.by) != 1.0)


@dataclass(frozen=True)
class Step:
    """target = terms[0] + terms[1] + ..."""

    target: str
    terms: tuple[Term, ...]


@dataclass(frozen=True)
class Program:
    """Steps and the dot products after them."""

    steps: tuple[Step, ...]
    dots: tuple[tuple[str, str], ...]

    @cached_property
    def scalars(self) -> tuple[str, ...]:
        """Names of the scalars, in order of first use."""
        terms = [term for step in self.steps for term in step.terms]
        return tuple(dict.fromkeys(term.scalar for term in terms if term.scalar is not None))

    @cached_property
    def vectors(self) -> tuple[str, ...]:
        """Names of the vectors that are read or written, in order of first use."""
        names = [name for step in self.steps for name in (step.target, *operands(step))]
        return tuple(dict.fromkeys(names + [name for pair in self.dots for name in pair]))

    @cached_property
    def targets(self) -> frozenset[str]:
        """Names of the vectors that are written."""
        return frozenset(step.target for step in self.steps)

    def read(self, same: Mapping[str, int]) -> set[int]:
        """The vectors whose old elements are read from memory, as values of `same`, which is equal for two names of one
        vector."""
        old: set[int] = set()
        written: set[int] = set()
        for step in self.steps:
            old |= {same[name] for name in operands(step)} - written
            written.add(same[step.target])
        return old | {same[name] for pair in self.dots for name in pair} - written

    @property
    def flops(self) -> int:
        """Additions and multiplications per element; multiplications by 1 or -1 do not count."""
        of_steps = sum(
            len(step.terms) - 1 + sum(term.multiplications for term in step.terms) for step in self.steps
        )
        return of_steps + 2 * len(self.dots)


def operands(step: Step) -> list[str]:
    """Names of the vectors that a step reads, in the order of its terms."""
    return [name for term in step.terms for name in term.vectors]


def parse(steps: str, dots: str, vectors: Collection[str]) -> Program:
    """`steps` and `dots` over vectors of these names; raises ValueError that names the step or dot product."""
    program = Program(
        tuple(_step(text.strip(), vectors) for text in steps.split(";") if text.strip()),
        tuple(_dot(text, vectors) for text in dots.split()),
    )
    if not program.vectors:
        raise ValueError("there is nothing to do: give steps, dots or both")
    return program


def _step(text: str, vectors) -> Step:
    target, equals, right = (part.strip() for part in text.partition("="))
    if not equals or not re.fullmatch(NAME, target) or not right:
        raise _wrong(text, f"expected {GRAMMAR}")
    _require_vector(text, target, vectors)
    terms: list[Term] = []
    at = 0
    while at < len(right):
        term = TERM.match(right, at)
        if not term or (terms and not term[1]):
            raise _wrong(text, f"cannot read {right[at:]!r}; expected {GRAMMAR}")
        sign, first, others = term.groups()
        terms.append(_term(text, sign, first, others, vectors))
        at = term.end()
    if len(terms) > MOST_TERMS:
        raise _wrong(text, f"it has {len(terms)} terms, and at most {MOST_TERMS} are possible: use two steps")
    return Step(target, tuple(terms))


def _term(text: str, sign: str | None, first: str, others: str, vectors) -> Term:
    by, scalar, names = 1.0, None, re.findall(NAME, others)
    if re.fullmatch(NUMBER, first):
        by = float(first)
    elif names and first not in vectors:
        scalar = first
    else:
        names.insert(0, first)
    if not isfinite(by):
        raise _wrong(text, f"{first} is too large for a float64")
    if len(names) not in (1, 2):
        what = f"{first}{others.rstrip()}"
        raise _wrong(text, f"{what!r} needs one or two vectors after at most one number or scalar")
    for name in names:
        _require_vector(text, name, vectors)
    return Term(-by if sign == "-" else by, scalar, tuple(names))


def _dot(text: str, vectors) -> tuple[str, str]:
    a, dot, b = text.partition(".")
    if not dot:
        raise ValueError(f"dot product {text!r}: expected VECTOR.VECTOR, pairs separated by spaces")
    for name in (a, b):
        if name not in vectors:
            raise ValueError(
                f"dot product {text!r}: {name!r} is not a vector; there are: {', '.join(vectors)}"
            )
    return a, b


def _require_vector(text: str, name: str, vectors) -> None:
    if name not in vectors:
        raise _wrong(text, f"{name!r} is not a vector; there are: {', '.join(vectors)}")


def _wrong(text: str, why: str) -> ValueError:
    return ValueError(f"step {text!r}: {why}")
