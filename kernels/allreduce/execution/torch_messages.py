"""A communicator for reducers over processes of torch.distributed: messages go over gloo.

It has the methods of mpi4py's communicators that the reducers of schedules call. Each message has a known length; MPI's
own all-reduce and the order of arrival are not there. gloo moves messages on threads of its own, but tells that a
message is complete only to a process that waits for it: so `Test` of a message that was begun is never true, and a
started reduction begins its second round in `finish`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from mpi4py import MPI

from kernels.allreduce.execution.requests import Calls
from kernels.allreduce.execution.torch_ranks import TorchRanks, group_of

TAGS = 1 << 16  # of one communicator


class TorchRequest:
    """A message or a collective call, begun by `Start` any number of times. Idle, it equals MPI.REQUEST_NULL."""

    __hash__ = object.__hash__

    def __init__(self, begin: Callable[[], Any]):
        self._begin, self._work = begin, None

    def Start(self) -> TorchRequest:
        self._work = self._begin()
        return self

    def Wait(self) -> None:
        """Raises RuntimeError if the other process has ended, or after the time limit of the process group."""
        if self._work is None:
            return
        try:
            self._work.wait()
        except RuntimeError as error:
            raise RuntimeError(
                "a sum over processes of torch has no end: another process has ended or waits elsewhere; look for its "
                f"error, and give all processes the same number of batches ({error})"
            ) from None
        self._work = None

    def Test(self) -> bool:
        return self._work is None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, MPI.Request) and self._work is None)


def _start(messages: Iterable[TorchRequest]) -> None:
    for message in messages:
        message.Start()


def _wait(messages: Iterable[TorchRequest]) -> None:
    for message in messages:
        message.Wait()


def _test(messages: Iterable[TorchRequest]) -> bool:
    return all(message.Test() for message in messages)


class TorchCommunicator(TorchRanks):
    """Ranks that send messages. Its duplicates share the group of gloo, and each has tags of its own."""

    calls = Calls(_start, _wait, _test)

    def __init__(self, members: list[int], group: Any, nodes: tuple[int, ...], taken: set[int] | None = None):
        super().__init__(members, group)
        self.nodes = nodes  # for every rank, the first rank of its node
        self._taken = set() if taken is None else taken
        self._number = min(set(range(len(self._taken) + 1)) - self._taken)
        self._taken.add(self._number)
        self._attribute: Any = None

    def Dup(self) -> TorchCommunicator:
        return TorchCommunicator(self._members, self._group, self.nodes, self._taken)

    def Free(self) -> None:
        """Gives the tags back. Collective, after the last message."""
        self._taken.discard(self._number)

    def Get_attr(self, key: Any) -> Any:
        """The only attribute, whatever the key."""
        return self._attribute

    def Set_attr(self, key: Any, value: Any) -> None:
        self._attribute = value

    def Send_init(self, buffer: np.ndarray, dest: int, tag: int = 0) -> TorchRequest:
        return self._message(self._group.send, buffer, dest, tag)

    def Recv_init(self, buffer: np.ndarray, source: int, tag: int = 0) -> TorchRequest:
        return self._message(self._group.recv, buffer, source, tag)

    def Isend(self, buffer: np.ndarray, dest: int, tag: int = 0) -> TorchRequest:
        return self.Send_init(buffer, dest, tag).Start()

    def Irecv(self, buffer: np.ndarray, source: int, tag: int = 0) -> TorchRequest:
        return self.Recv_init(buffer, source, tag).Start()

    def _message(self, call: Callable[..., Any], buffer: np.ndarray, peer: int, tag: int) -> TorchRequest:
        import torch

        if not 0 <= tag < TAGS:
            raise ValueError(f"tag {tag} of a message: it must be 0 ... {TAGS - 1}")
        if not buffer.size:
            return TorchRequest(lambda: None)
        tensors, number = [torch.from_numpy(buffer.reshape(-1).view(np.uint8))], TAGS * self._number + tag
        return TorchRequest(lambda: call(tensors, peer, number))

    def Allreduce_init(self, *_: Any) -> Any:
        raise NotImplementedError("torch.distributed has no persistent collective calls")

    Allgather_init = Allreduce_init

    def Iallreduce(self, send: Any, receive: np.ndarray, op: MPI.Op = MPI.SUM) -> TorchRequest:
        """Of integers, by MPI.SUM, MPI.MAX or MPI.BOR, whose results do not depend on the order."""
        import torch

        if receive.dtype.kind != "i":
            raise TypeError(f"an all-reduce of {receive.dtype} over torch has no order: reduce integers")
        if isinstance(send, np.ndarray):  # else MPI.IN_PLACE
            np.copyto(receive, send)
        reduce = self._dist.ReduceOp
        by = next(theirs for own, theirs in ((MPI.SUM, reduce.SUM), (MPI.MAX, reduce.MAX), (MPI.BOR, reduce.BOR))
                  if own == op)  # fmt: skip
        tensor = torch.from_numpy(receive)
        return TorchRequest(
            lambda: self._dist.all_reduce(tensor, op=by, group=self._group, async_op=True)
        ).Start()

    def Allreduce(self, send: Any, receive: np.ndarray, op: MPI.Op = MPI.SUM) -> None:
        self.Iallreduce(send, receive, op).Wait()

    def Iallgather(self, send: np.ndarray, receive: np.ndarray) -> TorchRequest:
        import torch

        own, into = (torch.from_numpy(array.reshape(-1).view(np.uint8)) for array in (send, receive))
        gather = self._dist.all_gather_into_tensor
        return TorchRequest(lambda: gather(into, own, group=self._group, async_op=True)).Start()

    def Allgather(self, send: np.ndarray, receive: np.ndarray) -> None:
        self.Iallgather(send, receive).Wait()

    def allreduce(self, given: Any, op: MPI.Op = MPI.SUM) -> Any:
        return functools.reduce(op, self.allgather(given))


def of_group(members: list[int]) -> TorchCommunicator:
    """A communicator of these processes, given by their ranks in torch's default group. Collective over them."""
    group = group_of(members)
    places = TorchRanks(members, group).places()
    return TorchCommunicator(members, group, tuple(places.index(place) for place in places))
