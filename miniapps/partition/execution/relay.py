"""Messages between the stages of a pipeline: sends that do not wait, and receives into memory of their own.

    relay = Relay(comm)                   # of the ranks along the stages; None without messages
    send, receive = relay(step), relay(other)
    send(x); [y] = receive(); relay.finish()

A tensor that was sent stays in memory until its message has left, at the latest until `finish`, which ends a step.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import torch

from miniapps.partition.execution.bound import Incoming, Outgoing
from miniapps.trace.schema import EXCHANGE, WAIT

SEND, RECEIVE = ("stage.send", EXCHANGE), ("stage.receive", WAIT)  # regions in a trace


class Relay:
    """The messages of this rank; `comm`: of the ranks that differ only along the stages, in their order."""

    def __init__(self, comm):
        self.comm = comm
        self.leaving: list[tuple[list, list]] = []  # requests, and the tensors that they read

    def __call__(self, step: Outgoing) -> Callable:
        """The function of a message: `send(*tensors)`, or `receive()`, which returns a list of tensors."""
        return Receiving(self, step) if isinstance(step, Incoming) else Sending(self, step)

    def finish(self) -> None:
        """Wait until all messages have left."""
        for requests, _ in self.leaving:
            for request in requests:
                request.Wait()
        self.leaving = []

    def release(self) -> None:
        """Release the tensors whose messages have left."""
        while self.leaving and all(request.Test() for request in self.leaving[0][0]):
            self.leaving.pop(0)


class Sending:
    """Sends the arrays of a value."""

    region = SEND

    def __init__(self, relay: Relay, step: Outgoing):
        self.relay, self.step = relay, step
        self.nbytes = size_of(step)

    def __call__(self, *tensors: torch.Tensor) -> None:
        relay, step = self.relay, self.step
        relay.release()
        kept = [x.contiguous() for x in tensors]
        requests = [relay.comm.Isend(raw(x), dest=step.peer, tag=step.tag) for x in kept if x.numel()]
        relay.leaving.append((requests, kept))


class Receiving:
    """Receives the arrays of a value."""

    region = RECEIVE

    def __init__(self, relay: Relay, step: Outgoing):
        self.relay, self.step = relay, step
        self.nbytes = size_of(step)

    def __call__(self) -> list[torch.Tensor]:
        step = self.step
        count = 1 if step.count is None else step.count
        found = [torch.empty(step.shape, dtype=getattr(torch, step.dtype)) for _ in range(count)]
        for x in found:
            if x.numel():
                self.relay.comm.Recv(raw(x), source=step.peer, tag=step.tag)
        return found


def size_of(step: Outgoing) -> int:
    """The bytes of a message."""
    count = 1 if step.count is None else step.count
    return count * prod(step.shape) * getattr(torch, step.dtype).itemsize


def raw(x: torch.Tensor) -> np.ndarray:
    """The memory of a contiguous tensor as bytes."""
    return x.reshape(-1).view(torch.uint8).numpy()
