"""The stages of a plan as data, in the form of the trace (`stages` computes them). No torch, no plan."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

GIVEN, LEAVING = -1, -2  # of an edge: parameters and inputs; loss, gradients and updates

Short = Annotated[str, Meta(max_length=200)]
Names = Annotated[tuple[Short, ...], Meta(max_length=64)]
Count = Annotated[int, Meta(ge=0, le=2**62)]
Place = Annotated[int, Meta(ge=-2, le=1000)]


class Stage(msgspec.Struct, frozen=True):
    """Operations of one layer: its `modules`, in order; `axes`: divide their work."""

    layer: Short
    modules: Names
    backward: bool
    axes: Names
    operations: Count


class Edge(msgspec.Struct, frozen=True):
    """Values from stage to stage, inside one, from GIVEN, or to LEAVING; `kind` is empty without messages."""

    source: Place
    target: Place
    kind: Short = ""
    axes: Names = ()
    calls: Count = 0
    bytes: Count = 0


class Stages(msgspec.Struct, frozen=True):
    """All stages of a plan in an order of computation; `axes` of the plan, `mesh` as text."""

    axes: Names
    mesh: Short
    ranks: Count
    operations: Count
    gradients: Count
    stages: Annotated[tuple[Stage, ...], Meta(max_length=1000)]
    edges: Annotated[tuple[Edge, ...], Meta(max_length=20_000)]

    def encode(self) -> str:
        """The stages as one line of JSON, which `decode` reads."""
        return msgspec.json.encode(self).decode()


def decode(text: str) -> Stages:
    """The inverse of `encode`. Raises ValueError for other text."""
    try:
        found = msgspec.json.decode(text, type=Stages)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"not the stages of a plan: {error}") from None
    count = len(found.stages)
    for edge in found.edges:
        if not GIVEN <= edge.source < count or not (0 <= edge.target < count or edge.target == LEAVING):
            raise ValueError(f"an edge from stage {edge.source} to {edge.target}, of {count} stages")
    return found
