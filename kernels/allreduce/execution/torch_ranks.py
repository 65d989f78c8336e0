"""Processes of torch.distributed as ranks, for programs that MPI has not launched."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np

BOOT = Path("/proc/sys/kernel/random/boot_id")  # differs on every running kernel


class TorchRanks:
    """Processes of torch.distributed, with the methods of mpi4py's communicator that recordings and instruments call.

    Objects are pickled and sent over gloo, whatever the backend of the program's own group."""

    def __init__(self, members: list[int], group: Any):
        import torch.distributed as dist

        self._dist, self._members, self._group = dist, members, group
        self.rank: int = members.index(dist.get_rank())
        self.size = len(members)

    def bcast(self, given: Any, root: int = 0) -> Any:
        carried = [given]
        self._dist.broadcast_object_list(carried, src=self._members[root], group=self._group)
        return carried[0]

    def allgather(self, given: Any) -> list[Any]:
        found: list[Any] = [None] * self.size
        self._dist.all_gather_object(found, given, group=self._group)
        return found

    def gather(self, given: Any, root: int = 0) -> list[Any] | None:
        found = self.allgather(given)
        return found if self.rank == root else None

    def send(self, given: Any, dest: int, tag: int = 0) -> None:
        self._dist.send_object_list([given], dst=self._members[dest], group=self._group)

    def recv(self, source: int, tag: int = 0) -> Any:
        carried = [None]
        self._dist.recv_object_list(carried, src=self._members[source], group=self._group)
        return carried[0]

    def sendrecv(self, given: Any, dest: int, sendtag: int, source: int, recvtag: int) -> Any:
        self.send(given, dest)
        return self.recv(source)

    def Split_type(self, kind: Any, key: int = 0) -> TorchRanks:
        """The ranks of this node."""
        places = self.places()
        members = [self._members[rank] for rank, other in enumerate(places) if other == places[self.rank]]
        return TorchRanks(members, group_of(members))

    def places(self) -> list[tuple[str, str]]:
        """For every rank, what the ranks of its node have in common. Collective."""
        return self.allgather((platform.node(), BOOT.read_text() if BOOT.exists() else ""))

    def reduced(self, array: np.ndarray, by: str) -> np.ndarray:
        """The element-wise "max" or "sum" of int64 arrays of all ranks."""
        import torch

        tensor = torch.from_numpy(array.copy())
        operation = {"max": self._dist.ReduceOp.MAX, "sum": self._dist.ReduceOp.SUM}[by]
        self._dist.all_reduce(tensor, op=operation, group=self._group)
        found: np.ndarray = tensor.numpy()
        return found

    def Free(self) -> None:
        self._dist.destroy_process_group(self._group)
        self._group = None


def of_all() -> TorchRanks:
    """The processes of torch's default group. Collective."""
    import torch.distributed as dist

    return TorchRanks(list(range(dist.get_world_size())), dist.new_group(backend="gloo"))


def group_of(members: list[int]) -> Any:
    """A group of gloo of these processes, given by their ranks in torch's default group. Collective over them."""
    import torch.distributed as dist

    return dist.new_group(members, backend="gloo", use_local_synchronization=True)
