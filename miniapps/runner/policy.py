"""What a run does to keep its promise: one Policy, resolved from the options at launch, that all of its parts ask."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.allreduce import Reduction
from kernels.allreduce.coding import coding
from kernels.guarantees import LEVELS, meets
from kernels.wires import PLAIN

# (ordering, accumulation) of the all-reduces of a level: of scalars, of vectors. An exact sum is the one rule that is
# free of order and in which no element depends on another: an element is off by half a unit in its last place at most.
BY_LEVEL = {
    "none": (("library", "working"), ("library", "working")),
    "run": (("recursive-doubling", "working"), ("direct", "working")),
    "layout": (("direct", "exact"), ("direct", "exact")),
    "exact": (("direct", "exact"), ("direct", "exact")),
}
SCALARS = 16  # elements up to which a shape counts as scalars


@dataclass(frozen=True)
class Policy:
    """What a guarantee and the options of a run come to.

    `level`      the guarantee asked for
    `scalars`    (ordering, accumulation) of all-reduces of up to SCALARS elements
    `vectors`    the same of all others
    `by_option`  whether an option names the ordering, in place of the guarantee
    `per_block`  whether what is computed of logical blocks must not depend on which of them a rank has: kernels whose
                 rounding does are called block by block, with one thread where the number of threads enters
    `exact_products`  whether products enter global sums unrounded
    `kernel`     what a kernel must promise that works on all blocks of a rank; `exact` speaks of global sums alone
    `partial_sum`  what a sum must promise whose partial sums an all-reduce adds up: under `layout` it sees one block at
                 a time, so that it is enough that it repeats; under `exact` nothing may be rounded before the end
    """

    level: str
    scalars: tuple[str, str]
    vectors: tuple[str, str]
    by_option: bool
    per_block: bool
    exact_products: bool
    kernel: str
    partial_sum: str

    def of(self, elements: int, wire: str = PLAIN) -> tuple[str, str]:
        """(ordering, accumulation) of all-reduces of that many elements.

        Over a wire that loses something they are those of vectors, by `direct` where the library would add, which
        knows no wires.
        """
        if coding(wire) is None:
            return self.scalars if elements <= SCALARS else self.vectors
        ordering, accumulation = self.vectors
        return "direct" if ordering == "library" and not self.by_option else ordering, accumulation

    def check(self) -> None:
        """Raise ChoiceError where an ordering or accumulation promises less than the level, or they do not go
        together."""
        for ordering, accumulation in {self.scalars, self.vectors}:
            Reduction(ordering, accumulation=accumulation).require(self.level)

    def require_files(self) -> None:
        """Raise ChoiceError where an ordering names a file that is not sound."""
        for ordering, _ in {self.scalars, self.vectors}:
            Reduction(ordering).require_links()


def resolve(level: str, ordering: str | None, accumulation: str | None) -> Policy:
    """The Policy of a guarantee, with the `ordering` and `accumulation` that options name (None: by level)."""
    scalars, vectors = (
        (ordering, accumulation or "working") if ordering else (own, accumulation or held)
        for own, held in BY_LEVEL[level]
    )
    return Policy(
        level=level,
        scalars=scalars,
        vectors=vectors,
        by_option=ordering is not None,
        per_block=meets(level, "layout"),
        exact_products=level == "exact",
        kernel=min(level, "layout", key=LEVELS.index),
        partial_sum="run" if level == "layout" else level,
    )
