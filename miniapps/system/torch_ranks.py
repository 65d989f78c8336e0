"""The processes of torch.distributed as ranks, where a launcher of torch started them and MPI knows each alone."""

from __future__ import annotations

import platform
import sys
from typing import Any

from miniapps.system import environment


def by_torch() -> bool:
    """Whether a launcher of torch started this process together with others."""
    launched = environment.innermost()
    return (
        launched is not None
        and launched.size > 1
        and launched.name in (environment.TORCHRUN, environment.TORCH)
    )


def of_torch() -> TorchRanks | None:
    """The ranks of torch's default group; None where MPI started the processes, or the group is not there yet.

    Collective over the group where it returns one."""
    if not by_torch() or "torch.distributed" not in sys.modules:
        return None
    import torch.distributed as dist

    if not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    return TorchRanks(list(range(dist.get_world_size())), dist.new_group(backend="gloo"))


class TorchRanks:
    """Some processes of torch, with the calls of mpi4py's communicator that recordings make. Objects are pickled; they
    travel over gloo, whatever the backend of the program's own group."""

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
        places = self.allgather((platform.node(), environment.boot()))
        found: TorchRanks | None = None
        for place in dict.fromkeys(places):  # all processes make all groups
            members = [self._members[rank] for rank, other in enumerate(places) if other == place]
            group = self._dist.new_group(members, backend="gloo")
            if place == places[self.rank]:
                found = TorchRanks(members, group)
        assert found is not None
        return found

    def Free(self) -> None:
        self._dist.destroy_process_group(self._group)
        self._group = None
