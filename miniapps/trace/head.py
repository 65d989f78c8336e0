"""The schema of a trace's attributes, on which the rest of the code relies."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from kernels.guarantees import LEVELS, Level
from miniapps.trace.schema import Decider, Effect, Kind
from miniapps.untrusted import records

RANKS_MOST = 2**24  # of a run
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Rank = Annotated[int, Meta(ge=0, lt=RANKS_MOST)]
Short = Annotated[str, Meta(max_length=4096)]
Number = Annotated[float, Meta(gt=-1e18, lt=1e18)]


class TracerCost(msgspec.Struct):
    """The attributes of the group `tracer`; a killed run has none."""

    events: Count = 0
    ns_per_event: Number = 0.0
    flush_ns: Count = 0
    bytes: Count = 0
    dropped: Count = 0


class Reduction(msgspec.Struct):
    """The description of a planned reduction. `region`: its events; `shape`, `dtype` of a contribution; `ranks`: number
    of ranks that take part; `decided`: who chose its ordering; `calls` of this rank; `bounds` of a reduce-scatter in
    given parts; `contributions`: number from this rank to a call, 0 if unknown; `tensors`: shapes of the tensors in a
    vector, where its wire encodes each by itself. Omitted fields have the defaults."""

    ordering: Short
    region: Short = ""
    parameters: dict[str, int | Short] = {}
    accumulation: Short = "working"
    wire: Short = "as is"
    collective: Short = "allreduce"
    operation: Short = "sum"
    shape: Annotated[list[Count], Meta(max_length=32)] = []
    bounds: Annotated[list[Count], Meta(max_length=RANKS_MOST + 1)] = []
    tensors: Annotated[list[Annotated[list[Count], Meta(max_length=32)]], Meta(max_length=2**16)] = []
    dtype: Short = ""
    guarantee: Level = "none"
    ranks: Annotated[int, Meta(ge=0, le=RANKS_MOST)] = 0
    decided: Decider = "guarantee"
    contributions: Count = 0
    calls: Count = 0


class Unreached(msgspec.Struct):
    """A reduction that kept the library's order under a guarantee: its `call`, the reason `why`, the number of
    `calls`."""

    call: Short
    why: Short
    calls: Count


class Neighbours(msgspec.Struct, rename={"sources": "from", "targets": "to"}):
    """The neighbours of a rank in a neighbourhood collective, ranks of MPI_COMM_WORLD in MPI's order: -1 for
    MPI_PROC_NULL, -2 for a rank outside MPI_COMM_WORLD."""

    sources: list[Annotated[int, Meta(ge=-2, le=RANKS_MOST)]]
    targets: list[Annotated[int, Meta(ge=-2, le=RANKS_MOST)]]


class Between(msgspec.Struct):
    """The bytes between neighbouring blocks of a periodic grid of `rows` x `columns` blocks in each exchange, for any
    owners: (rows away, columns away, bytes) of each direction."""

    rows: Annotated[int, Meta(ge=1, le=2**24)]
    columns: Annotated[int, Meta(ge=1, le=2**24)]
    bytes: Annotated[list[tuple[int, int, Count]], Meta(max_length=8)]


class Messages(msgspec.Struct):
    """A plan of messages: `bytes` to each of `ranks` in one exchange, and the number of exchanges, `calls`; `between`:
    the bytes between blocks, from which the plan for other owners follows."""

    ranks: Annotated[list[Rank], Meta(max_length=RANKS_MOST)]
    bytes: Annotated[list[Count], Meta(max_length=RANKS_MOST)]
    calls: Count = 0
    between: Between | None = None

    def __post_init__(self) -> None:
        if len(self.ranks) != len(self.bytes):
            raise ValueError(f"messages to {len(self.ranks)} ranks with {len(self.bytes)} numbers of bytes")


class Option(msgspec.Struct):
    """The `effect` of an option on guarantees (`schema.EFFECTS`), and the rows that it decides on, as TABLE:NAME with
    `*` for any text; `of_ranks`: these rows depend on which blocks a rank owns."""

    effect: Literal[""] | Effect = ""
    records: Annotated[list[Annotated[str, Meta(pattern="^(values|fingerprints):", max_length=200)]],
                       Meta(max_length=100)] = []  # fmt: skip
    of_ranks: bool = False


class Ledger(msgspec.Struct):
    """The ledger of predictions when the run began: its number of rows and the hash of the last row."""

    rows: Count
    head: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Head(msgspec.Struct):
    """The attributes of one rank, decoded (docs/reference/trace.md). Other attributes are allowed and not used."""

    format: str
    schema: int
    complete: bool
    size: Annotated[int, Meta(ge=1, le=RANKS_MOST)]
    rank: Rank
    app: Short | UnsetType = UNSET
    problem: Short | UnsetType = UNSET
    run_id: Short | UnsetType = UNSET
    guarantee: Level | UnsetType = UNSET
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
    options: dict[str, Option] | UnsetType = UNSET
    regions: dict[str, Kind] | UnsetType = UNSET
    reductions: dict[str, Reduction] | UnsetType = UNSET
    promises: dict[str, Level] | UnsetType = UNSET
    partners: dict[str, list[Rank]] | UnsetType = UNSET
    messages: dict[str, list[Messages]] | UnsetType = UNSET
    ledger: Ledger | UnsetType = UNSET
    chain: Short | UnsetType = UNSET
    result: dict[str, Short] | UnsetType = UNSET
    files: dict[str, Short] | UnsetType = UNSET
    unseen: dict[str, Count] | UnsetType = UNSET
    unreached: list[Unreached] | UnsetType = UNSET
    neighbours: dict[str, Neighbours] | UnsetType = UNSET
    tracer: TracerCost | UnsetType = UNSET


# The meaning of each attribute, in Markdown, with links relative to docs/reference.
MEANINGS = {
    "format": "`fpna-trace`; a file without it comes from another program",
    "schema": "5; files of another schema are refused",
    "app": "`coupled`",
    "config": "effective configuration by section, defaults included",
    "problem": "hash of the options that define the experiment: only runs with equal hashes are compared",
    "problem_options": "the options in this hash, with their values",
    "method": "the experimental factors: guarantee, device, ownership, closure evaluation",
    "options": "the effect of each option on promises and comparisons, see [the trace](trace.md#what-a-run-states)",
    "regions": 'the kind of each region, `{"halo": "exchange"}`',
    "reductions": "a description of every planned reduction, see [the trace](trace.md#what-a-run-states)",
    "files": "`fpna run` only: the names by which the program opened files with `MPI_File_open`, by number, "
    '`{"1": "out.dat"}`',
    "unseen": '`fpna run` only: calls of this rank that were counted and not recorded, `{"MPI_Psend_init": '
    "12}` ([any program](../how-to/any-program.md))",
    "unreached": "`fpna run` only: reductions that kept the library's order under a guarantee although the order "
    'matters, and all by operations of the program, `[{"call": "MPI_Allreduce at dot (cg.c:57)", "why": "user '
    'operation mysum (cg.c:12)", '
    '"calls": 120}]`',
    "neighbours": "`fpna run` only: the neighbours of this rank in each neighbourhood collective whose calls all "
    "had the same ones, ranks of MPI_COMM_WORLD in MPI's order, -1 for MPI_PROC_NULL: "
    '`{"MPI_Neighbor_allgather at f (a.c:9)": '
    '{"from": [1, 3], "to": [1, 3]}}`',
    "environment": "MPI library, node, `boot` (the id of the running kernel, which containers of one machine share), "
    "process id, device, CPU, package versions, threads, whitelisted variables, git revision, hash of "
    "the sources; `processor`: maker, family and instruction sets, by `cpuid`; `kinds`: the ranks and entries of each "
    "[kind](../how-to/unequal-ranks.md#ranks-of-two-kinds), if ranks differ in what decides bits; `arithmetic`: the "
    "choices that the loaded libraries report after the first repeat "
    "([scope](../explanation/comparison.md#what-a-promise-is-over)); `handles`: who took the MPI handle of a "
    "[wrapped communicator](../tutorials/own-programs.md#libraries-that-take-the-handle) of a "
    "recorded program",
    "promises": '`reductions` only: the guarantee of each variant, `{"sum:spa:emulated": "none"}`',
    "partners": 'ranks with which a region exchanges data, `{"halo": [0, 2]}`; collectives wait for all ranks',
    "messages": "the bytes that a region sends to each rank, by plan, and how often, see "
    "[the trace](trace.md#what-a-run-states)",
    "guarantee": "the requested level",
    "run_id": "identifies the launch; identifies the batch allocation (empty outside one)",
    "allocation_id": "identifies the launch; identifies the batch allocation (empty outside one)",
    "started": "UTC, ISO 8601",
    "ledger": "with `--ledger` only: how many `rows` the ledger of predictions had when the run began, and its "
    "`head`, the hash of the last ([predict](../explanation/prediction.md#the-ledger))",
    "result": "of rank 0, once known: the SHA-256 (32 hex digits) of each part of `result.json` but the seals "
    "of traces",
    "clock_offset_ns": "this rank's clock minus rank 0's, at start; its change per second (once known, at the end)",
    "clock_drift": "this rank's clock minus rank 0's, at start; its change per second (once known, at the end)",
    "complete": "true only after a regular end; believed only in a file that is sealed",
    "rank": "the rank that wrote the file",
    "size": "the number of ranks",
    "seed": "the seed of the run",
    "repeats": "the requested number of repeats",
    "chain": "the version of [heads](../how-to/verify.md#heads)",
    "tracer": "the group with the cost of tracing; empty if the run was killed",
}


def check(attributes: dict[str, Any], where: str) -> None:
    """Raise Refused, its message beginning with `where`, unless `attributes` are those of a trace."""
    head = records.conform(attributes, Head, f"{where}: attributes")
    if head.rank >= head.size:
        raise records.Refused(f"{where}: rank {head.rank} of {head.size} ranks; leave this run out")


def problem_hash(app: str, problem: Mapping[str, Any]) -> str:
    """The hash of `app` and the options of its problem, 16 hex digits: equal for runs of the same problem."""
    text = json.dumps([app, problem], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def orderings(reductions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The labels of a run's `reductions`, scalars first: `ring`, `ring in float64`. Leaves out orderings that the
    application chose for its own study."""
    own = [(math.prod(r.get("shape", ())), name, r) for name, r in reductions.items()]
    ordered = (r for *_, r in sorted(own, key=lambda each: each[:2]) if r.get("decided") != "application")
    return list(dict.fromkeys(map(label_of, ordered)))


def label_of(reduction: Mapping[str, Any]) -> str:
    """The label of one reduction: ordering, accumulation and wire."""
    accumulation, wire = reduction.get("accumulation", "working"), reduction.get("wire", "as is")
    held = f" in {accumulation}" if accumulation != "working" else ""
    return reduction["ordering"] + held + (f" over {wire}" if wire != "as is" else "")


def promised(reductions: Iterable[Mapping[str, Any]], size: int) -> dict[str, str]:
    """{label: the level that all reductions of this label over `size` ranks guarantee}, sorted by label."""
    levels: dict[str, str] = {}
    for each in reductions:
        if each.get("ranks", size) == size:
            label, level = label_of(each), str(each.get("guarantee", "none"))
            levels[label] = min(levels.get(label, level), level, key=LEVELS.index)
    return dict(sorted(levels.items()))
