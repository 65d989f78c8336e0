"""The attributes of a trace, by schema: what the rest of the code may rely on."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from kernels.guarantees import LEVELS
from miniapps.received import records

RANKS_MOST = 2**24  # of a run
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Rank = Annotated[int, Meta(ge=0, lt=RANKS_MOST)]
Short = Annotated[str, Meta(max_length=4096)]
Number = Annotated[float, Meta(gt=-1e18, lt=1e18)]


class Tracer(msgspec.Struct):
    """The attributes of the group `tracer`; absent where the run was killed."""

    events: Count = 0
    ns_per_event: Number = 0.0
    flush_ns: Count = 0
    bytes: Count = 0
    dropped: Count = 0


class Head(msgspec.Struct):
    """The attributes of one rank, JSON decoded (docs/trace.md). Others are allowed, and believed in nothing."""

    format: str
    schema: int
    complete: bool
    size: Annotated[int, Meta(ge=1, le=RANKS_MOST)]
    rank: Rank
    app: Short | UnsetType = UNSET
    problem: Short | UnsetType = UNSET
    run_id: Short | UnsetType = UNSET
    guarantee: Literal[LEVELS] | UnsetType = UNSET
    ordering: str | UnsetType = UNSET
    allocation_id: Short | UnsetType = UNSET
    started: Short | UnsetType = UNSET
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | UnsetType = UNSET
    repeats: Count | UnsetType = UNSET
    clock_offset_ns: Annotated[float, Meta(ge=-(2**62), le=2**62)] | UnsetType = UNSET
    clock_drift: Number | UnsetType = UNSET
    config: dict[str, dict[str, Any]] | UnsetType = UNSET
    problem_options: dict[str, Any] | UnsetType = UNSET
    method: dict[str, Any] | UnsetType = UNSET
    environment: dict[str, Any] | UnsetType = UNSET
    promises: dict[str, Literal[LEVELS]] | UnsetType = UNSET
    partners: dict[str, list[Rank]] | UnsetType = UNSET
    tracer: Tracer | UnsetType = UNSET


def check(attributes: dict[str, Any], where: str) -> None:
    """Raise Refused, its message beginning with `where`, unless `attributes` are those of a trace."""
    head = records.conform(attributes, Head, f"{where}: attributes")
    if head.rank >= head.size:
        raise records.Refused(f"{where}: rank {head.rank} of {head.size} ranks; leave this run out")
