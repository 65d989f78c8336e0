"""The bytes that the ranks of a run sent from node to node, as far as its traces state them.

An all-reduce with a schedule of the suite has known messages. For one by the MPI library, each node sends at least one
contribution. The traces state planned messages with their bytes to each rank, and how often they were sent. Other
collectives may send any number of bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from kernels import wires
from kernels.allreduce import coding
from kernels.allreduce.cost import sent
from kernels.allreduce.packing import Packing, decode
from kernels.allreduce.reduction import IN, OVER
from kernels.allreduce.reduction import Reduction as Described
from kernels.guarantees import ChoiceError
from miniapps.trace.head import Reduction, label_of
from miniapps.trace.reader import RankTrace
from miniapps.trace.records import PACKING
from miniapps.trace.schema import COLLECTIVE, EXCHANGE, OTHER

RANKS_MOST = 1024  # more ranks are not resolved by pair: a schedule may have messages between all pairs
NONE = (0, 0.0)
PLAIN = ("working", "float64", "compensated")  # accumulations that send only the schedule's messages


Totals = Mapping[tuple[int, str], tuple[int, float]]  # by (rank, region): number of events, and their bytes


@dataclass(frozen=True)
class Flow:
    """The messages of a `region` of this `kind` in all repeats of a run. `calls`: of the rank with most; `ordering`:
    label of a reduction, else empty.

    `pairs` (nodes, nodes): bytes from node to node, within a node on the diagonal; None if unknown. `least`, `most`
    (nodes,): bounds of the bytes that left each node; `most` is inf without a known limit.
    """

    region: str
    kind: str
    ordering: str
    calls: int
    pairs: np.ndarray | None
    least: np.ndarray
    most: np.ndarray


def hosts(traces: Sequence[RankTrace]) -> list[str]:
    """The host name of each rank, "" if its trace does not state it."""
    return [str((trace.attributes.get("environment") or {}).get("node", "")) for trace in traces]


def totals(traces: Sequence[RankTrace]) -> Totals:
    """The Totals of the events of traces, whose table `events` must have been read."""
    of_all: dict[tuple[int, str], tuple[int, float]] = {}
    for rank, trace in enumerate(traces):
        events, count = trace.tables["events"], len(trace.names)
        calls = np.bincount(events["name"], minlength=count)
        nbytes = np.bincount(events["name"], events["bytes"], minlength=count)
        of_all |= {(rank, name): (int(calls[i]), float(nbytes[i])) for i, name in enumerate(trace.names)}
    return of_all


def flows(traces: Sequence[RankTrace], places: Sequence[int], nodes: int, events: Totals) -> list[Flow]:
    """The Flow of every region of a run. `traces`: of all ranks, in their order; `places`: node of each rank, 0 to
    `nodes` - 1; `events`: used where traces state no number of calls."""
    return [
        *_of_reductions(traces, places, nodes, events),
        *_of_messages(traces, places, nodes),
        *_of_others(traces, places, nodes, events),
    ]


def _exactly(region: str, kind: str, ordering: str, calls: int, pairs: np.ndarray) -> Flow:
    left = pairs.sum(axis=1) - pairs.diagonal()
    return Flow(region, kind, ordering, calls, pairs, left, left)


def _between(
    region: str, kind: str, ordering: str, calls: int, least: np.ndarray, occupied: Iterable[int]
) -> Flow:
    """A flow with a known lower bound, and no upper bound on `occupied` nodes."""
    most = least.copy()
    most[list(occupied)] = math.inf
    return Flow(region, kind, ordering, calls, None, least, most)


# Reductions


def _of_reductions(
    traces: Sequence[RankTrace], places: Sequence[int], nodes: int, events: Totals
) -> Iterator[Flow]:
    for name, stated in traces[0].attributes.get("reductions", {}).items():
        reduction = msgspec.convert(stated, Reduction)
        calls = reduction.calls or events.get((0, reduction.region), NONE)[0]
        if calls:
            packing = _packing(traces[0], name)
            yield _of_reduction(reduction, packing, label_of(stated), calls, places, nodes)


def _packing(trace: RankTrace, name: str) -> Packing | None:
    """The trees of a reduction, None if its trace has none or the table of choices was not read."""
    choices = trace.tables.get("choices", {})
    rows = zip(*(choices[key].tolist() for key in ("name", "choice") if choices), strict=True)
    recorded = [trace.names[choice] for number, choice in rows if trace.names[number] == f"{PACKING}{name}"]
    try:
        return decode(recorded[0]) if recorded else None
    except ChoiceError:
        return None


def _of_reduction(
    described: Reduction, packing: Packing | None, label: str, calls: int, places: Sequence[int], nodes: int
) -> Flow:
    what = described.region, COLLECTIVE, label, calls
    occupied, nothing = set(places), np.zeros(nodes)
    whole = described.ranks == len(places)
    if whole and (by_pair := _sent(described, packing, places)) is not None:
        pairs = np.zeros((nodes, nodes))
        for (rank, other), size in by_pair.items():
            pairs[places[rank], places[other]] += calls * size
        return _exactly(*what, pairs)
    if len(occupied) < 2:
        return Flow(*what, None, nothing, nothing)
    least = nothing.copy()
    if whole and described.collective == "allreduce":
        least[list(occupied)] = calls * math.prod(described.shape) * _itemsize(described.dtype)
    return _between(*what, least, occupied)  # a reduction over some ranks does not state which


def _sent(
    described: Reduction, packing: Packing | None, places: Sequence[int]
) -> dict[tuple[int, int], int] | None:
    """{(rank, rank): bytes} in one call; None if the reduction sends more than the messages of a schedule, or if the
    schedule needs a file."""
    if len(places) > RANKS_MOST:
        return None
    try:
        reduction = Described.named(
            f"{described.ordering}{IN}{described.accumulation}{OVER}{described.wire}",
            tuple(described.shape),
            described.dtype,
            operation=described.operation,
            collective=described.collective,
            bounds=described.bounds or None,
            packing=packing,
            tensors=described.tensors or None,
        )
        if reduction.coding is None and not (
            described.accumulation in PLAIN and described.wire == wires.PLAIN
        ):
            return None
        if reduction.needs_links or not reduction.entry.scheduled or "owners" in reduction.entry.needs:
            return None
        context = {"nodes": places} if "nodes" in reduction.entry.needs else {}
        schedule = reduction.schedule(len(places), **context)
        if reduction.coding is not None:
            # A rank may encode several contributions separately; the trace does not state their number.
            several = reduction.accumulation not in PLAIN
            return None if several else coding.sent(reduction.coding, reduction.cells, schedule)
    except (ChoiceError, TypeError, ValueError):
        return None
    return sent(schedule, math.prod(reduction.shape), reduction.element_bytes, reduction.total_element_bytes)


def _itemsize(dtype: str) -> int:
    """Bytes of an element; 0 for an unknown type, such as one that a program defines."""
    try:
        return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
    except TypeError:
        return 0


# Messages between ranks


def _of_messages(traces: Sequence[RankTrace], places: Sequence[int], nodes: int) -> Iterator[Flow]:
    stated = [trace.attributes.get("messages", {}) for trace in traces]
    for region in dict.fromkeys(region for own in stated for region in own):
        pairs, most_calls = np.zeros((nodes, nodes)), 0
        for rank, own in enumerate(stated):
            plans = own.get(region, [])
            most_calls = max(most_calls, sum(plan["calls"] for plan in plans))
            for plan in plans:
                for peer, size in zip(plan["ranks"], plan["bytes"], strict=True):
                    if peer < len(places):
                        pairs[places[rank], places[peer]] += plan["calls"] * size
        if most_calls:
            yield _exactly(region, _kind(traces, region), "", most_calls, pairs)


def _of_others(
    traces: Sequence[RankTrace], places: Sequence[int], nodes: int, events: Totals
) -> Iterator[Flow]:
    """Flows of the remaining regions that may send: bounds from their partners, if they state any."""
    if len(set(places)) < 2:
        return
    known = {own.get("region") for own in traces[0].attributes.get("reductions", {}).values()}
    known.update(region for trace in traces for region in trace.attributes.get("messages", {}))
    regions = dict.fromkeys(name for trace in traces for name in trace.attributes.get("regions", {}))
    for region in regions:
        kind = _kind(traces, region)
        if region in known or kind not in (COLLECTIVE, EXCHANGE):
            continue
        calls = max(events.get((rank, region), NONE)[0] for rank in range(len(traces)))
        if any(region in trace.attributes.get("partners", {}) for trace in traces):
            yield _of_partners(region, kind, calls, traces, places, nodes, events)
        elif calls:
            yield _between(region, kind, "", calls, np.zeros(nodes), set(places))


def _of_partners(
    region: str,
    kind: str,
    calls: int,
    traces: Sequence[RankTrace],
    places: Sequence[int],
    nodes: int,
    events: Totals,
) -> Flow:
    least, most = np.zeros(nodes), np.zeros(nodes)
    for rank, trace in enumerate(traces):
        others = [
            other for other in trace.attributes.get("partners", {}).get(region, []) if other < len(places)
        ]
        away = [other for other in others if places[other] != places[rank]]
        total = events.get((rank, region), NONE)[1] if away else 0.0
        most[places[rank]] += total
        least[places[rank]] += total if len(away) == len(others) else 0.0
    return Flow(region, kind, "", calls, None, least, most)


def _kind(traces: Sequence[RankTrace], region: str) -> str:
    kinds = (trace.attributes.get("regions", {}).get(region) for trace in traces)
    return next((kind for kind in kinds if kind), OTHER)
