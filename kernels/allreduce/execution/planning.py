"""Makes a reducer: each rank checks the request, all ranks compare theirs, then each plans."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from dataclasses import replace

from mpi4py import MPI

from kernels.allreduce.accumulate import order_free
from kernels.allreduce.coding import CHEAPEST_BITS, Coding
from kernels.allreduce.errors import PlanMismatch, ReplayError, by_rank
from kernels.allreduce.execution.arrival import SIZE_LIMIT, ArrivalReducer, read_log
from kernels.allreduce.execution.coded import OnceReducer, WordsReducer
from kernels.allreduce.execution.executor import AccumulatingReducer, GatheringReducer, ScheduleReducer
from kernels.allreduce.execution.hops import HopReducer
from kernels.allreduce.execution.library import LibraryReducer
from kernels.allreduce.execution.order_free import ExactReducer
from kernels.allreduce.execution.placement import nodes_of
from kernels.allreduce.execution.reducer import Reducer, agree, digest_of
from kernels.allreduce.execution.two_level import TwoLevelReducer
from kernels.allreduce.links import read_packing
from kernels.allreduce.packing import Packing
from kernels.allreduce.reduction import Reduction
from kernels.allreduce.schedule import Schedule
from kernels.guarantees import ChoiceError


def plan(
    comm: MPI.Comm,
    *description,
    name: str = "",
    blocks: Sequence[int] | None = None,
    summed: bool = False,
    replay: Iterable | None = None,
    **axes,
) -> Reducer:
    """See `kernels.allreduce.plan`."""
    if comm == MPI.COMM_NULL:
        raise ValueError("the communicator is MPI.COMM_NULL: it was freed, or this rank is not in it")
    planned: Reduction | Exception
    try:
        planned = _described(*description, **axes)
        _require_fitting(comm, planned, blocks, summed, replay)
        asked = f"{planned}, sums of subtrees" if summed else str(planned)
    except (ValueError, TypeError) as error:  # ChoiceError and ReplayError are ValueErrors
        asked, planned = f"{type(error).__name__}: {error}", error
    reduction = _agreed(comm, asked, planned, name)
    if reduction.needs_links:
        reduction = replace(reduction, packing=_packing(comm, reduction))
    reducer = _reducer(comm, reduction, name, blocks, summed, replay)
    reducer._set_blocks(None if blocks is None else tuple(sorted(int(block) for block in blocks)))
    return reducer


def _reducer(comm: MPI.Comm, reduction: Reduction, name: str, blocks, summed: bool, replay) -> Reducer:
    if reduction.ordering == "library":
        return LibraryReducer(comm, reduction, name)
    if reduction.ordering == "arrival":
        return ArrivalReducer(comm, reduction, name, read_log(comm, replay))
    if reduction.contributions_travel:
        return ExactReducer(comm, reduction, name)
    schedule = reduction.schedule(comm.size, **context_of(comm, reduction, blocks))
    if reduction.coding is not None:
        return _coded(comm, reduction, reduction.coding, name, schedule, blocks)
    if reduction.collective == "allgather":
        return GatheringReducer(comm, reduction, name, schedule)
    if reduction.accumulation == "working":
        return ScheduleReducer(comm, reduction, name, schedule, summed=summed)
    return AccumulatingReducer(comm, reduction, name, schedule)


def _coded(
    comm: MPI.Comm, reduction: Reduction, coding: Coding, name: str, schedule: Schedule, blocks
) -> Reducer:
    """The reducer over a lossy wire. Collective."""
    if coding.hops == "every":
        return HopReducer(comm, reduction, name, schedule)
    apart = order_free(reduction.accumulation)
    if coding.inner is not None:
        listed = comm.allgather(sorted(map(int, blocks)) if apart and blocks is not None else [comm.rank])
        if apart and blocks is not None:
            owners_of(listed)  # raises unless each has one owner
        return TwoLevelReducer(comm, reduction, name, listed, apart)
    counts = comm.allgather(len(blocks) if apart and blocks is not None else 1)
    if apart and max(counts) * coding.codec.bits > CHEAPEST_BITS:
        return WordsReducer(comm, reduction, name, counts, True, plan)
    return OnceReducer(comm, reduction, name, counts, apart)


def _described(*description, **axes) -> Reduction:
    if description and isinstance(description[0], Reduction):
        (reduction,) = description
        if axes:
            raise TypeError(
                f"a Reduction was passed, and {', '.join(axes)} beside it: put all into the Reduction"
            )
        return reduction
    return Reduction(*description, **axes)


def _require_fitting(comm: MPI.Comm, reduction: Reduction, blocks, summed: bool, replay) -> None:
    """Raises for arguments that do not fit the reduction on this communicator, or are missing."""
    ordering, size = reduction.ordering, comm.size
    if not 0 <= reduction.root < size:
        raise ChoiceError(f"root {reduction.root} is no rank of this communicator: choose 0 ... {size - 1}")
    if replay is not None and ordering != "arrival":
        raise ReplayError(f"ordering {ordering!r} has no order of arrival to replay; only 'arrival' has")
    if ordering == "arrival" and size > SIZE_LIMIT:
        raise ValueError(f"ordering 'arrival' logs ranks in 16 bits: at most {SIZE_LIMIT} ranks, not {size}")
    if "owners" in reduction.entry.needs and blocks is None:
        raise ValueError(
            f"ordering {ordering!r} adds over blocks: pass blocks=, the numbers of this rank's blocks, one for "
            "each of its contributions"
        )
    if summed and not reduction.takes_sums:
        raise ChoiceError(
            f"summed: {reduction} does not take sums over subtrees of blocks: choose ordering block-tree, accumulation "
            "working and no lossy wire"
        )
    if reduction.bounds is not None and len(reduction.bounds) != size + 1:
        raise ChoiceError(
            f"bounds are {len(reduction.bounds)} numbers: a reduce-scatter among {size} ranks needs {size + 1}: the "
            "start of each part, and the end of the last"
        )
    if reduction.nodes is not None and len(reduction.nodes) != size:
        raise ValueError(
            f"nodes names the nodes of {len(reduction.nodes)} ranks: it needs one for each of {size}"
        )


def context_of(comm: MPI.Comm, reduction: Reduction, blocks) -> dict:
    """Arguments of the schedule other than the number of ranks; `blocks` are this rank's. Collective if there are
    any."""
    context: dict[str, Sequence[int]] = {}
    needs = reduction.entry.needs
    if "owners" in needs:
        context["owners"] = owners_of(comm.allgather(sorted(int(block) for block in blocks)))
    if "nodes" in needs and reduction.packing is None:
        context["nodes"] = nodes_of(comm) if reduction.nodes is None else reduction.nodes
    return context


def _packing(comm: MPI.Comm, reduction: Reduction) -> Packing:
    """The packing that rank 0 reads from the file of links. Raises ChoiceError on all ranks if the file is not sound,
    or describes other ranks."""
    file = reduction.entry.parameters["links"]
    nodes, hosts = reduction.nodes or nodes_of(comm), hosts_of(comm)
    outcome: Packing | str = ""
    if comm.rank == 0:
        try:
            outcome = read_packing(file, comm.size, nodes, hosts)
        except ChoiceError as error:
            outcome = str(error)
    outcome = comm.bcast(outcome, 0)
    if isinstance(outcome, str):
        raise ChoiceError(outcome)
    return outcome


def hosts_of(comm: MPI.Comm) -> list[str]:
    """The host name of every rank. Collective."""
    return comm.allgather(platform.node()[:255])


def owners_of(blocks: list[list[int]]) -> tuple[int, ...]:
    """The owner of every block, from the blocks of every rank. Raises ValueError unless each has exactly one."""
    count = sum(map(len, blocks))
    owners = {block: rank for rank, own in enumerate(blocks) for block in own}
    if sorted(owners) != list(range(count)):
        listed = "; ".join(f"rank {rank}: {own}" for rank, own in enumerate(blocks[:8]))
        raise ValueError(f"blocks must be 0 ... {count - 1}, each on one rank: {listed}")
    return tuple(owners[block] for block in range(count))


def _agreed(comm: MPI.Comm, asked: str, planned: Reduction | Exception, name: str) -> Reduction:
    """The reduction, if all ranks plan the same one; else raises on every rank, so that none waits."""
    if not agree(comm, digest_of(asked.encode())):
        listed = by_rank(comm.allgather(asked))
        if not isinstance(planned, Exception):
            label = f"reducer {name!r}" if name else "one reducer"
            raise PlanMismatch(f"ranks do not ask for the same {label}: {listed}")
    if isinstance(planned, Exception):
        raise planned
    return planned
