"""Whether messages crossed the network: bytes at the interfaces of nodes against what a run's traces state.

An all-reduce with a schedule of ours says who sends how many bytes to whom, so that what must leave each node is known.
Of one that the MPI library does, each node must at least send one contribution. A halo exchange states the bytes that a
rank sends and its partners: they leave the node where all partners are elsewhere, and may where some are. Of other
regions nothing can be said.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jobs.cluster.errors import ClusterError
from jobs.cluster.nodes import Counters
from jobs.words import cut
from kernels.allreduce.packing import Packing, decode
from kernels.allreduce.reduction import IN, Reduction
from kernels.allreduce.schedule import Schedule, transfers
from kernels.guarantees import ChoiceError
from miniapps.received.regular import Refused
from miniapps.runner.traced import PACKING
from miniapps.trace import TraceError
from miniapps.trace.reader import RankTrace, read_run
from miniapps.trace.schema import EXCHANGE

HEADERS = 14 + 20 + 20 + 12  # bytes of a packet: Ethernet, IPv4, TCP, its time stamps
TOLERANCE = 0.05  # headers of the MPI library, packets without data, other options of TCP
STARTING = 2**18  # bytes that leave a node while a job starts and ends: the launcher's, and connections
HOST = re.compile(r"n([1-9][0-9]{0,2})", re.ASCII)
PLAIN = (
    "working",
    "float64",
    "compensated",
)  # accumulations that send nothing beside the schedule's messages


@dataclass(frozen=True)
class Stated:
    """Bytes of messages that must leave a node, and that may at the most; None: no limit is known."""

    least: float = 0
    most: float | None = 0

    def __add__(self, other: Stated) -> Stated:
        most = None if self.most is None or other.most is None else self.most + other.most
        return Stated(self.least + other.least, most)


@dataclass(frozen=True)
class Crossed:
    """What a node sent, without headers, beside what is stated."""

    node: int
    stated: Stated
    sent: float

    @property
    def around(self) -> bool:
        """Whether messages must have gone around the network."""
        return self.sent < (1 - TOLERANCE) * self.stated.least

    @property
    def more(self) -> bool:
        """Whether more was sent than is stated."""
        most = self.stated.most
        return most is not None and self.sent > (1 + TOLERANCE) * most + STARTING


def payload(counters: Counters) -> int:
    """Bytes that a node sent without the headers of its packets."""
    return max(counters.sent_bytes - HEADERS * counters.sent_packets, 0)


def crossed(run: Path, traffic: Sequence[Counters]) -> list[Crossed]:
    """What each node sent while a run was made, beside what its traces in the directory `run` state. Raises
    ClusterError where there are none, or none of ranks in these nodes."""
    stated = sent_by_nodes(traces_of(run), len(traffic))
    return [
        Crossed(node, of_node, payload(counters))
        for node, (of_node, counters) in enumerate(zip(stated, traffic, strict=True), start=1)
    ]


def verdict(nodes: Sequence[Crossed]) -> str:
    """What they come to, in a sentence; "" where messages crossed as stated."""
    if around := [one for one in nodes if one.around]:
        worst = min(around, key=lambda one: one.sent / one.stated.least)
        return (
            f"messages went around the network: by its trace node n{worst.node} sent at least "
            f"{worst.stated.least:,.0f} bytes to other nodes, and {worst.sent:,.0f} left its interface. The MPI "
            "library found another way, such as shared memory: leave UCX_TLS, OMPI_MCA_btl and the like to this command"
        )
    if more := [one for one in nodes if one.more]:
        names = ", ".join(f"n{one.node}" for one in more)
        return f"more left {names} than the trace states: messages that no region of it knows, or sent again"
    most = max((one.stated.least for one in nodes), default=0)
    if most < STARTING:
        return (
            f"nothing is shown: of what the trace states, {most:,.0f} bytes must have left a node at the most, and the "
            f"launcher alone may send {STARTING:,}; compare a run with larger all-reduces"
        )
    return ""


def traces_of(run: Path) -> list[RankTrace]:
    """The traces of all ranks of a run, in rank order. Raises ClusterError."""
    try:
        return sorted(read_run(run, ["events", "choices"]), key=lambda trace: trace.attributes["rank"])
    except (TraceError, Refused) as error:
        raise ClusterError(f"nothing to compare with: {error}") from None
    except OSError as error:
        raise ClusterError(f"{cut(str(run), 200)}: {error.strerror}") from None


def sent_by_nodes(traces: Sequence[RankTrace], nodes: int) -> list[Stated]:
    """What the traces of a run state that each of so many nodes sends to others. Raises ClusterError for ranks that ran
    elsewhere."""
    places = [_node(trace, nodes) for trace in traces]
    stated = [Stated() for _ in range(nodes)]
    for trace, place in zip(traces, places, strict=True):
        for of_rank in _of_exchanges(trace, places):
            stated[place] += of_rank
    if traces and len(traces) == traces[0].attributes["size"]:
        for of_nodes in _of_reductions(traces[0], places, nodes):
            stated = [a + b for a, b in zip(stated, of_nodes, strict=True)]
    return stated


def _node(trace: RankTrace, nodes: int) -> int:
    host = str(trace.attributes["environment"].get("node", ""))
    match = HOST.fullmatch(host)
    if match is None or int(match[1]) > nodes:
        raise ClusterError(
            f"rank {trace.attributes['rank']} of this trace ran on {cut(host, 80)!r}, which is no node of this cluster"
        )
    return int(match[1]) - 1


def _bytes_of(trace: RankTrace, region: str) -> np.ndarray:
    """The bytes of every event of a region."""
    events = trace.tables["events"]
    chosen = [number for number, name in enumerate(trace.names) if name == region]
    return events["bytes"][np.isin(events["name"], chosen)]


def _of_exchanges(trace: RankTrace, places: Sequence[int]) -> Iterator[Stated]:
    here = places[trace.attributes["rank"]]
    for region, partners in trace.attributes.get("partners", {}).items():
        if trace.attributes.get("regions", {}).get(region) != EXCHANGE:
            continue
        others = [rank for rank in partners if rank != trace.attributes["rank"] and rank < len(places)]
        away = [rank for rank in others if places[rank] != here]
        if away:
            total = float(_bytes_of(trace, region).sum(dtype=float))
            yield Stated(total if len(away) == len(others) == len(partners) else 0, total)


def _of_reductions(trace: RankTrace, places: Sequence[int], nodes: int) -> Iterator[list[Stated]]:
    occupied = set(places)
    if len(occupied) < 2:
        return
    for name, described in trace.attributes.get("reductions", {}).items():
        calls = len(_bytes_of(trace, described["region"]))
        if not calls:
            continue
        if described["ranks"] != len(places):  # which ranks is not stated
            yield [Stated(0, None) if node in occupied else Stated() for node in range(nodes)]
            continue
        reduction = _reduction(described, _packing(trace, name))
        schedule = _schedule(reduction, places) if reduction else None
        if reduction and schedule:
            sent = _sent(schedule, reduction, places, nodes)
            yield [Stated(calls * of_node, calls * of_node) for of_node in sent]
        else:
            all_send = described["collective"] == "allreduce"
            least = calls * math.prod(described["shape"]) * _itemsize(described["dtype"]) if all_send else 0
            yield [Stated(least, None) if node in occupied else Stated() for node in range(nodes)]


def _itemsize(dtype: str) -> int:
    """Bytes of an element; 0 of a type that is not known, such as one that a program has made."""
    try:
        return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
    except TypeError:
        return 0


def _packing(trace: RankTrace, name: str) -> Packing | None:
    """The trees of a reduction, as its trace has them."""
    choices = trace.tables.get("choices", {})
    rows = zip(*(choices[key].tolist() for key in ("name", "choice") if choices), strict=True)
    recorded = [trace.names[choice] for number, choice in rows if trace.names[number] == f"{PACKING}{name}"]
    try:
        return decode(recorded[0]) if recorded else None
    except ChoiceError:
        return None


def _reduction(described: Mapping[str, Any], packing: Packing | None) -> Reduction | None:
    """What a trace describes, where messages of a schedule are all that it sends, and no file has to be read for it."""
    if described["accumulation"] not in PLAIN or described["ordering"] in ("library", "arrival"):
        return None
    try:
        reduction = Reduction.named(
            f"{described['ordering']}{IN}{described['accumulation']}",
            tuple(described["shape"]),
            described["dtype"],
            operation=described["operation"],
            collective=described["collective"],
            bounds=described.get("bounds"),
            packing=packing,
        )
    except (ChoiceError, TypeError, ValueError):
        return None
    return None if reduction.needs_links else reduction


def _schedule(reduction: Reduction, places: Sequence[int]) -> Schedule | None:
    if "owners" in reduction.entry.needs:
        return None
    try:
        return reduction.schedule(
            len(places), **({"nodes": places} if "nodes" in reduction.entry.needs else {})
        )
    except (ChoiceError, ValueError):
        return None


def _sent(schedule: Schedule, reduction: Reduction, places: Sequence[int], nodes: int) -> list[int]:
    """Bytes that one call sends from each node to others."""
    n = math.prod(reduction.shape)
    sent = [0] * nodes
    for rank, rounds in enumerate(schedule.ranks()):
        for current in rounds:
            for transfer in transfers(current.sends, lambda chunk: schedule.bounds(n, chunk)):
                if places[transfer.peer] != places[rank]:
                    sent[places[rank]] += (transfer.stop - transfer.start) * reduction.element_bytes
    return sent
