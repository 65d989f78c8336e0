"""The policy by which a run keeps its guarantee, resolved from the options at launch and used by all of its parts."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.allreduce import Reduction
from kernels.allreduce.coding import coding
from kernels.guarantees import LEVELS, meets
from kernels.wires import PLAIN

# (ordering, accumulation) of the all-reduces of a level: for scalars, for vectors, for vectors of blocks. Only an exact
# sum depends neither on order nor on other elements: its error is at most half a unit in the last place. A tree over
# blocks moves fewer bytes.
BY_LEVEL = {
    "none": (("library", "working"),) * 3,
    "run": (("recursive-doubling", "working"), ("direct", "working"), ("direct", "working")),
    "layout": (("direct", "exact"), ("direct", "exact"), ("block-tree", "working")),
    "exact": (("direct", "exact"),) * 3,
}
SCALARS = 16  # elements up to which a shape counts as scalars


@dataclass(frozen=True)
class Policy:
    """The consequences of a guarantee and of the options of a run.

    `level`      the requested guarantee
    `scalars`    (ordering, accumulation) of all-reduces of up to SCALARS elements
    `vectors`    (ordering, accumulation) of all other all-reduces
    `blocks`     (ordering, accumulation) of those for which an application asks for a tree over blocks
    `by_option`  whether an option names the ordering, in place of the guarantee
    `per_block`  whether results must not depend on which blocks share a rank: kernels whose rounding would depend on
                 it are called block by block, with one thread if the number of threads affects the bits
    `exact_products`  whether products enter global sums unrounded
    `kernel`     guarantee required of kernels that take all blocks of a rank at once, at most `layout`, since `exact`
                 is about global sums only
    `partial_sum`  guarantee required of kernels whose partial sums an all-reduce adds: under `layout` they get one
                 block at a time, so `run` suffices; under `exact` they must not round
    """

    level: str
    scalars: tuple[str, str]
    vectors: tuple[str, str]
    blocks: tuple[str, str]
    by_option: bool
    per_block: bool
    exact_products: bool
    kernel: str
    partial_sum: str

    def of(self, elements: int, wire: str = PLAIN, tree: bool = False) -> tuple[str, str]:
        """(ordering, accumulation) of all-reduces of so many elements; `tree`: of those for which the application asks
        for a tree over blocks.

        A lossy wire uses the vector ordering; `library` becomes `direct`, because the library knows no wires.
        """
        if tree and wire == PLAIN:
            return self.blocks
        if coding(wire) is None:
            return self.scalars if elements <= SCALARS else self.vectors
        ordering, accumulation = self.vectors
        return "direct" if ordering == "library" and not self.by_option else ordering, accumulation

    def check(self) -> None:
        """Raise ChoiceError where an ordering or accumulation promises less than the level, or where the two cannot be
        combined."""
        for ordering, accumulation in {self.scalars, self.vectors, self.blocks}:
            Reduction(ordering, accumulation=accumulation).require(self.level)

    def require_files(self) -> None:
        """Raise ChoiceError where an ordering names an invalid file of links."""
        for ordering, _ in {self.scalars, self.vectors}:
            Reduction(ordering).require_links()


def resolve(level: str, ordering: str | None, accumulation: str | None) -> Policy:
    """The Policy of a guarantee, with the `ordering` and `accumulation` that options name (None: by level)."""
    scalars, vectors, blocks = (
        (ordering, accumulation or "working") if ordering else (own, accumulation or held)
        for own, held in BY_LEVEL[level]
    )
    return Policy(
        level=level,
        scalars=scalars,
        vectors=vectors,
        blocks=blocks,
        by_option=ordering is not None,
        per_block=meets(level, "layout"),
        exact_products=level == "exact",
        kernel=min(level, "layout", key=LEVELS.index),
        partial_sum="run" if level == "layout" else level,
    )
