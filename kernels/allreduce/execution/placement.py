"""Which ranks are on one node."""

from __future__ import annotations

from mpi4py import MPI


def nodes_of(comm: MPI.Comm) -> tuple[int, ...]:
    """The node of every rank, numbered by its first rank: ranks that can share memory are on one node."""
    known: tuple[int, ...] | None = getattr(comm, "nodes", None)
    if known is not None:  # not MPI's
        return known
    node = comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank)
    first = comm.allgather(node.bcast(comm.rank, 0))
    node.Free()
    return tuple(first)


def on_one_node(comm: MPI.Comm) -> bool:
    """Whether all ranks can share memory: the same on all of them. Collective."""
    if hasattr(comm, "nodes"):
        return len(set(comm.nodes)) == 1
    node = comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank)
    members = node.size
    node.Free()
    return members == comm.size
