"""A packing: spanning trees over vertices, each with its share of a vector.

A vertex is a rank, or a node with all its ranks. The schedule of `trees` is made from a packing, and its bits depend on
the packing and the number of ranks alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Annotated

import msgspec
from msgspec import Meta

from kernels.guarantees import ChoiceError

MOST_VERTICES = 256
MOST_TREES = 4096
MOST_RANKS = 2**20
WHOLE = 2**20  # the approximate sum of the shares of a computed packing
ROOT = -1  # instead of a parent

Parent = Annotated[int, Meta(ge=ROOT, lt=MOST_VERTICES)]
Vertex = Annotated[int, Meta(ge=0, lt=MOST_VERTICES)]


@dataclass(frozen=True)
class SpanningTree:
    """`parents` of every vertex, ROOT for the one that adds last; `share` of the vector, in any unit.

    Raises ChoiceError unless every vertex is below the one root.
    """

    parents: Annotated[tuple[Parent, ...], Meta(min_length=1, max_length=MOST_VERTICES)]
    share: Annotated[int, Meta(ge=1, le=2**40)]

    def __post_init__(self):
        count = len(self.parents)
        if self.parents.count(ROOT) != 1 or max(self.parents) >= count:
            raise ChoiceError(f"parents {list(self.parents)} are no tree over {count} vertices with one root")
        if len(self.depths) != count:
            alone = next(v for v in range(count) if v not in self.depths)
            raise ChoiceError(
                f"parents {list(self.parents)} are no tree: vertex {alone} is not below the root"
            )

    @cached_property
    def root(self) -> int:
        """The vertex that adds last."""
        return self.parents.index(ROOT)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The children of every vertex, ascending."""
        below: list[list[int]] = [[] for _ in self.parents]
        for vertex, parent in enumerate(self.parents):
            if parent != ROOT:
                below[parent].append(vertex)
        return tuple(map(tuple, below))

    @cached_property
    def depths(self) -> dict[int, int]:
        """{vertex: edges between it and the root}, for the root and all vertices below it."""
        depths, todo = {self.root: 0}, [self.root]
        while todo:
            vertex = todo.pop()
            for child in self.children[vertex]:
                depths[child] = depths[vertex] + 1
                todo.append(child)
        return depths

    @property
    def height(self) -> int:
        """The depth of the deepest vertex."""
        return max(self.depths.values())

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """The edges (lower vertex, higher vertex), ascending."""
        pairs = ((v, p) for v, p in enumerate(self.parents) if p != ROOT)
        return tuple(sorted((min(pair), max(pair)) for pair in pairs))


@dataclass(frozen=True)
class Packing:
    """`trees` over the same vertices; `places`, the vertex of every rank, if known.

    Raises ChoiceError for trees over different vertices, and if a vertex has no rank.
    """

    trees: Annotated[tuple[SpanningTree, ...], Meta(min_length=1, max_length=MOST_TREES)]
    places: Annotated[tuple[Vertex, ...], Meta(max_length=MOST_RANKS)] = ()

    def __post_init__(self):
        counts = {len(tree.parents) for tree in self.trees}
        if len(counts) > 1:
            raise ChoiceError(f"a packing is of trees over the same vertices, not of {sorted(counts)}")
        if self.places and sorted(set(self.places)) != list(range(self.vertices)):
            raise ChoiceError(
                f"{self.vertices} vertices need a rank each: ranks are on {sorted(set(self.places))}"
            )

    @property
    def vertices(self) -> int:
        """The number of vertices."""
        return len(self.trees[0].parents)

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits of a hash of trees and places."""
        return blake2b(self.encode().encode(), digest_size=8).hexdigest()

    def encode(self) -> str:
        """The packing as JSON, for `decode`."""
        trees = [{"parents": tree.parents, "share": tree.share} for tree in self.trees]
        return json.dumps({"trees": trees, "places": self.places}, separators=(",", ":"))


def decode(text: str) -> Packing:
    """The packing that `Packing.encode` wrote. Raises ChoiceError for other text."""
    try:
        return msgspec.json.decode(text, type=Packing)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ChoiceError(f"no packing of trees: {error}") from None


def equal(vertices: int, places: Sequence[int] = ()) -> Packing:
    """The packing for links that are all alike: the star around every vertex, with equal shares.

    Each of m ports then carries 2 (m - 1) / m of the vector in and out, which is the least possible.
    """
    stars = (tuple(ROOT if v == hub else hub for v in range(vertices)) for hub in range(vertices))
    return Packing(tuple(SpanningTree(parents, 1) for parents in stars), tuple(places))
