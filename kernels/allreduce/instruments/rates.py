"""Rates and latencies between every two ranks or nodes, and rates of the ports of nodes, measured under MPI.

One pair is measured at a time, in both directions at once as in an all-reduce. The others sleep, because a rank that
waits in MPI takes a core. Messages grow until they take SPAN seconds, so that a link that lets its first bytes pass at
once does not seem faster. All ranks of a node send, each to one rank of the other node. Then every node exchanges with
all others at once, with each as much as their link carries in SPAN seconds: this measures its port.

The best of several measurements counts: other processes make a link slower, and nothing makes it faster.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from mpi4py import MPI

from kernels.allreduce.execution.planning import hosts_of, nodes_of
from kernels.allreduce.links import Links, Port
from kernels.progress import Progress

LEAST, MOST = 1 << 16, 1 << 26  # bytes of a message
SPAN = 0.1  # seconds that a message should take
PINGS = 20
NAP = 1e-3  # seconds between two checks whether it is a rank's turn
OF = ("nodes", "ranks")

Pairs = list[tuple[int, int, int]]  # rank, its partner, bytes of a message in each direction


def measure(comm: MPI.Intracomm, of: str, repeats: int, quiet: bool = False) -> Links:
    """The links between the ranks of `comm`, or between its nodes, each the best of `repeats`; the same on all ranks.

    Collective. Shows progress on stderr of rank 0 unless `quiet`.
    """
    comm = comm.Dup()
    nodes, hosts = nodes_of(comm), hosts_of(comm)
    members = [[rank for rank, node in enumerate(nodes) if node == first] for first in dict.fromkeys(nodes)]
    groups = members if of == "nodes" else [[rank] for rank in range(comm.size)]
    count = len(groups)
    pairs = list(itertools.combinations(range(count), 2))
    ports = [node for node in members if len(members) > 2]
    progress = Progress("links") if comm.rank == 0 and not quiet else None
    rates, latencies = np.zeros((count, count)), np.zeros((count, count))
    for number, (u, v) in enumerate(pairs):
        if progress:
            progress.show(number / (len(pairs) + len(ports)), f"pair {number + 1} of {len(pairs)}")
        there = list(zip(groups[u], groups[v], strict=False))
        trial = partial(_pair, comm, there, repeats)
        out, back, latency = _in_turn(comm, sorted(itertools.chain(*there)), trial)
        rates[u, v], rates[v, u] = out, back
        latencies[u, v] = latencies[v, u] = latency
    found = []
    for number, node in enumerate(ports):
        if progress:
            progress.show(
                (len(pairs) + number) / (len(pairs) + len(ports)), f"port {number + 1} of {len(ports)}"
            )
        own = [vertex for vertex, group in enumerate(groups) if set(group) <= set(node)]
        exchange = _of_port(groups, own, rates)
        everyone = sorted({rank for a, b, _ in exchange for rank in (a, b)})
        rate, *_ = _in_turn(comm, everyone, partial(_port, comm, exchange, repeats))
        found.append(Port(tuple(own), rate))
    if progress:
        progress.clear()
    comm.Free()
    return Links(
        rates=tuple(tuple(map(_digits, row)) for row in rates.tolist()),
        ports=tuple(found),
        latencies=tuple(tuple(map(_digits, row)) for row in latencies.tolist()),
        hosts=tuple(hosts[group[0]] for group in groups),
        of="nodes" if of == "nodes" else "ranks",
    )


def _in_turn(comm: MPI.Comm, ranks: Sequence[int], trial: Callable[[], Sequence[float]]) -> list[float]:
    """Runs `trial` on `ranks` alone, and returns the three numbers of the lowest of them, on all ranks. The others
    sleep meanwhile."""
    box = np.zeros(3)
    if comm.rank in ranks:
        result = trial()
        if comm.rank == min(ranks):
            box[:] = result
    request = comm.Ibcast(box, min(ranks))
    while not request.Test():
        time.sleep(NAP)
    return box.tolist()


def _pair(comm: MPI.Intracomm, there: Sequence[tuple[int, int]], repeats: int) -> tuple[float, float, float]:
    """Bytes per second from the first ranks to the second, and back, and the latency in seconds."""
    group = _group(comm, sorted(itertools.chain(*there)))
    nbytes = LEAST
    while True:  # also warms up
        seconds = max(_exchange(comm, group, [(a, b, nbytes) for a, b in there]))
        if seconds >= SPAN or nbytes >= MOST:
            break
        nbytes = min(MOST, nbytes * 2 if seconds > SPAN / 4 else nbytes * 4)
    timed = [_exchange(comm, group, [(a, b, nbytes) for a, b in there]) for _ in range(repeats)]
    ahead, back = (max(len(there) * nbytes / t[side] for t in timed) for side in (1, 0))
    latency = _latency(comm, *there[0]) if comm.rank in there[0] else 0.0
    group.Free()
    return ahead, back, latency


def _of_port(groups: Sequence[Sequence[int]], own: Sequence[int], rates: np.ndarray) -> Pairs:
    """The messages between ranks of the vertices `own` and ranks of all others."""
    pairs = []
    for vertex in range(len(groups)):
        if vertex in own:
            continue
        u = own[vertex % len(own)]
        lanes = list(zip(groups[u], groups[vertex], strict=False))
        nbytes = int(min(rates[u, vertex], rates[vertex, u]) * SPAN / len(lanes))
        pairs += [(a, b, max(nbytes, 1)) for a, b in lanes]
    return pairs


def _port(comm: MPI.Intracomm, exchange: Pairs, repeats: int) -> tuple[float, float, float]:
    """Bytes per second in the slower direction, and two zeros."""
    group = _group(comm, sorted({rank for a, b, _ in exchange for rank in (a, b)}))
    total = sum(nbytes for *_, nbytes in exchange)
    rate = max(total / max(_exchange(comm, group, exchange)) for _ in range(repeats))
    group.Free()
    return _digits(rate), 0.0, 0.0


def _group(comm: MPI.Intracomm, ranks: Sequence[int]) -> MPI.Intracomm:
    """A communicator of these ranks, made by them alone."""
    whole = comm.Get_group()
    part = whole.Incl(ranks)
    group = comm.Create_group(part)
    part.Free()
    whole.Free()
    return group


def _exchange(comm: MPI.Comm, group: MPI.Comm, pairs: Pairs) -> tuple[float, float]:
    """Seconds until the first ranks of all pairs have the messages of the second ranks, and the reverse. Collective
    over `group`."""
    own = [(b, nbytes, 0) for a, b, nbytes in pairs if a == comm.rank]
    own += [(a, nbytes, 1) for a, b, nbytes in pairs if b == comm.rank]
    memory = [(np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)) for _, nbytes, _ in own]
    group.Barrier()
    begin = time.perf_counter()
    receives = [comm.Irecv(into, peer) for (peer, *_), (_, into) in zip(own, memory, strict=True)]
    sends = [comm.Isend(out, peer) for (peer, *_), (out, _) in zip(own, memory, strict=True)]
    took = np.zeros(2)
    for request, (*_, side) in zip(receives, own, strict=True):
        request.Wait()
        took[side] = max(took[side], time.perf_counter() - begin)
    MPI.Request.Waitall(sends)
    most = np.empty_like(took)
    group.Allreduce(took, most, MPI.MAX)
    return float(most[0]), float(most[1])


def _latency(comm: MPI.Comm, one: int, other: int) -> float:
    """Half of the shortest round trip of a byte, in seconds."""
    byte, shortest = np.zeros(1, np.uint8), math.inf
    peer = other if comm.rank == one else one
    for _ in range(PINGS):
        begin = time.perf_counter()
        if comm.rank == one:
            comm.Send(byte, peer)
            comm.Recv(byte, peer)
        else:
            comm.Recv(byte, peer)
            comm.Send(byte, peer)
        shortest = min(shortest, time.perf_counter() - begin)
    return shortest / 2


def _digits(value: float) -> float:
    """To five digits: more would be noise."""
    return float(f"{value:.5g}")
