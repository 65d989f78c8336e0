"""Checks that messages crossed the network: compares bytes at the interfaces of nodes with bytes that a run's traces
state (`miniapps.trace.traffic`)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.cluster.errors import ClusterError
from jobs.cluster.nodes import Counters
from jobs.words import cut
from miniapps.trace import TraceError
from miniapps.trace.reader import RankTrace, read_run
from miniapps.trace.traffic import flows, totals
from miniapps.untrusted.regular import Refused

HEADERS = 14 + 20 + 20 + 12  # bytes of a packet: Ethernet, IPv4, TCP, its time stamps
TOLERANCE = 0.05  # headers of the MPI library, packets without data, other options of TCP
STARTING = (
    2**18
)  # bytes that leave a node while a job starts and ends: of the launcher and of new connections
HOST = re.compile(r"n([1-9][0-9]{0,2})", re.ASCII)


@dataclass(frozen=True)
class Stated:
    """The least and the most bytes of messages that leave a node by its trace; `most` None: no limit is known."""

    least: float = 0
    most: float | None = 0

    def __add__(self, other: Stated) -> Stated:
        most = None if self.most is None or other.most is None else self.most + other.most
        return Stated(self.least + other.least, most)


@dataclass(frozen=True)
class Crossed:
    """The bytes that a node sent, without headers, beside the stated bytes."""

    node: int
    stated: Stated
    sent: float

    @property
    def around(self) -> bool:
        """True if some messages must have bypassed the network."""
        return self.sent < (1 - TOLERANCE) * self.stated.least

    @property
    def more(self) -> bool:
        """True if the nodes sent more than the traces state."""
        most = self.stated.most
        return most is not None and self.sent > (1 + TOLERANCE) * most + STARTING


def payload(counters: Counters) -> int:
    """The bytes that a node sent, without the headers of its packets."""
    return max(counters.sent_bytes - HEADERS * counters.sent_packets, 0)


def crossed(run: Path, traffic: Sequence[Counters]) -> list[Crossed]:
    """The bytes that each node sent during a run, beside the bytes that the traces in the directory `run` state.

    Raises ClusterError if there are no traces, or if ranks ran outside these nodes."""
    stated = sent_by_nodes(traces_of(run), len(traffic))
    return [
        Crossed(node, of_node, payload(counters))
        for node, (of_node, counters) in enumerate(zip(stated, traffic, strict=True), start=1)
    ]


def verdict(nodes: Sequence[Crossed]) -> str:
    """A sentence if bytes and traces disagree, or if the messages are too few to show anything; else ""."""
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
            f"launcher alone may send {STARTING:,}; compare a longer run, or one with larger all-reduces"
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
    """The bytes that each of `nodes` nodes sends to others by the traces of a run.

    Raises ClusterError for ranks that ran outside these nodes."""
    places = [_node(trace, nodes) for trace in traces]
    stated = [Stated() for _ in range(nodes)]
    for flow in flows(traces, places, nodes, totals(traces)):
        for node, (least, most) in enumerate(zip(flow.least.tolist(), flow.most.tolist(), strict=True)):
            stated[node] += Stated(least, None if math.isinf(most) else most)
    return stated


def _node(trace: RankTrace, nodes: int) -> int:
    host = str(trace.attributes["environment"].get("node", ""))
    match = HOST.fullmatch(host)
    if match is None or int(match[1]) > nodes:
        raise ClusterError(
            f"rank {trace.attributes['rank']} of this trace ran on {cut(host, 80)!r}, which is no node of this cluster"
        )
    return int(match[1]) - 1
