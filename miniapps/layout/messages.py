"""Messages between ranks: planned messages, sent repeatedly, and unplanned exchanges of records."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from miniapps.system.device import staging


class Messages:
    """At most one message per peer and direction, the same every time, by persistent requests.

    `sends` and `receives` map a peer to the part (start, stop) of `outgoing` that is sent there, or of `incoming` that
    is received from there. Both are one-dimensional arrays of module `xp`; on a GPU their data pass through (pinned)
    host memory. Construction is collective over `comm`, which is duplicated; call `free()` at the end. Each exchange
    sends `sent` {peer: bytes}, `nbytes` in total, and adds 1 to `counted["calls"]`; for a trace, set `counted` to the
    dictionary that `Tracer.messages` returned.
    """

    def __init__(self, comm, sends: dict, receives: dict, dtype=np.float64, xp=np):
        self._sent = staging(xp, (_extent(sends),), dtype)
        self._received = staging(xp, (_extent(receives),), dtype)
        self._staged = xp is not np
        self.outgoing: Any = xp.empty(self._sent.shape, dtype) if self._staged else self._sent
        self.incoming: Any = xp.empty(self._received.shape, dtype) if self._staged else self._received
        width = self._sent.itemsize
        self.sent = {peer: (stop - start) * width for peer, (start, stop) in sorted(sends.items())}
        self.nbytes = sum(self.sent.values())
        self.peers = sorted({*sends, *receives})
        self.counted: dict[str, Any] = {"calls": 0}
        self._comm = comm.Dup()
        self.requests = [
            self._comm.Recv_init(self._received[start:stop], source=peer)
            for peer, (start, stop) in sorted(receives.items())
        ] + [
            self._comm.Send_init(self._sent[start:stop], dest=peer)
            for peer, (start, stop) in sorted(sends.items())
        ]
        if self.requests:
            self._start = type(self.requests[0]).Startall
            self._wait = type(self.requests[0]).Waitall
            self._test = type(self.requests[0]).Testall

    def start(self) -> None:
        """Send `outgoing`; call only if there are `requests`."""
        self.counted["calls"] += 1
        if self._staged and self._sent.size:
            self.outgoing.get(out=self._sent)  # waits for the device
        self._start(self.requests)

    def progress(self) -> None:
        """Advance the messages after `start`, without waiting."""
        self._test(self.requests)

    def finish(self) -> None:
        """Wait, after `start`, until `incoming` holds all messages and `outgoing` may be written again."""
        self._wait(self.requests)
        if self._staged and self._received.size:
            self.incoming.set(self._received)

    def free(self) -> None:
        """Release requests and communicator. Collective."""
        for request in self.requests:
            request.Free()
        self.requests = []
        self._comm.Free()


def exchange(comm, peers: np.ndarray, records: np.ndarray) -> list[np.ndarray]:
    """Send `records[i]` of `(n, ...)` to rank `peers[i]`, for all i; returns the records from each rank, in its order.

    No rank needs to know beforehand what it will receive. Collective.
    """
    counts = np.bincount(peers, minlength=comm.size)
    coming = np.empty_like(counts)
    comm.Alltoall(counts, coming)
    sorted_by_peer = np.ascontiguousarray(records[np.argsort(peers, kind="stable")])
    received = np.empty((coming.sum(), *records.shape[1:]), records.dtype)
    width = math.prod(records.shape[1:])
    comm.Alltoallv([sorted_by_peer, counts * width], [received, coming * width])
    return np.split(received, np.cumsum(coming)[:-1])


def all_to_all(comm, parts: Sequence[np.ndarray], coming: Sequence[int] | None = None) -> list[np.ndarray]:
    """Send `parts[r]`, one-dimensional and all of one dtype, to rank r; returns the parts from each rank, as views of
    one array.

    `coming[r]` is the number of elements that rank r sends here; if it is None, one more message finds it. Collective.
    """
    counts = np.array([len(part) for part in parts])
    if coming is None:
        known = np.empty_like(counts)
        comm.Alltoall(counts, known)
    else:
        known = np.array(coming)
    outgoing = np.concatenate(parts)
    incoming = np.empty(known.sum(), outgoing.dtype)
    width = outgoing.itemsize
    comm.Alltoallv([outgoing.view(np.uint8), counts * width], [incoming.view(np.uint8), known * width])
    return np.split(incoming, np.cumsum(known)[:-1])


def tell_gather(tracer, rank: int, nbytes: int) -> None:
    """Record in the trace that this `rank` sends `nbytes` to rank 0 once."""
    if tracer is not None and rank:
        tracer.messages("gather", {0: nbytes})["calls"] += 1


def _extent(parts: dict) -> int:
    return max((stop for _, stop in parts.values()), default=0)
