"""Making a reducer: what is asked for is checked on each rank, then across the ranks, then planned."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
from mpi4py import MPI

from kernels.allreduce import accumulate as accumulate_
from kernels.allreduce import catalog, collectives, operations
from kernels.allreduce.accumulate import Accumulation
from kernels.allreduce.catalog import Ordering
from kernels.allreduce.errors import PlanMismatch, ReplayError, by_rank
from kernels.allreduce.execution.arrival import SIZE_LIMIT, ArrivalReducer, read_log
from kernels.allreduce.execution.executor import AccumulatingReducer, GatheringReducer, ScheduleReducer
from kernels.allreduce.execution.library import NativeReducer
from kernels.allreduce.execution.order_free import ExactReducer, FixedPointReducer
from kernels.allreduce.execution.reducer import Reducer, agree, digest_of
from kernels.allreduce.operations import Operation
from kernels.allreduce.schedule import Schedule, evenly
from kernels.allreduce.tree import keeps_order
from kernels.guarantees import ChoiceError, known

# Of orderings that convert contributions to integers, and of all others.
NUMBERS = {name: ("float64", "float32") for name in ("fixed-point", "exact")}
ANY_NUMBERS = ("float64", "float32", "float16", "bfloat16", "int64")
NATIVE_NUMBERS = ("float64", "float32", "int64")
COLLECTIVES = ("allreduce", "reduce", "reduce-scatter", "allgather")
SHORT_BYTES = 1 << 13  # up to which fewer rounds pay, at the price of more bytes
PAIR_BYTES = 1 << 18  # as long, of two ranks, which send no more bytes in fewer rounds


def plan(
    comm: MPI.Comm,
    ordering: str = "direct",
    shape: int | tuple[int, ...] = (),
    dtype="float64",
    check: bool = False,
    replay: Iterable | None = None,
    name: str = "",
    *,
    operation: str | Operation = "sum",
    accumulate: str = "working",
    collective: str = "allreduce",
    root: int = 0,
    blocks: Sequence[int] | None = None,
    nodes: Sequence[int] | None = None,
) -> Reducer:
    """See `kernels.allreduce.plan`."""
    if comm == MPI.COMM_NULL:
        raise ValueError("the communicator is MPI.COMM_NULL: it was freed, or this rank is not in it")
    try:
        found, shape, dtype, operation = _understand(
            comm, ordering, shape, dtype, operation, collective, root
        )
        _require_context(comm, found, replay, blocks, nodes)
        accumulation = _accumulation(found, accumulate, dtype, operation)
        asked = (
            f"{_what(collective, root)}, ordering {ordering!r}, {operation.name} of {dtype}, shape {shape}"
        )
        asked += "" if accumulation is None else f", accumulate {accumulate!r}"
        asked += ", check" if check else ""
        failure = None
    except (ValueError, TypeError) as error:  # ChoiceError and ReplayError are ValueErrors
        asked, failure = f"{type(error).__name__}: {error}", error
    _agree_on(comm, asked, failure, name)
    if ordering == "native":
        reducer = NativeReducer(comm, found, shape, dtype, name, operation)
    elif ordering == "arrival":
        reducer = ArrivalReducer(comm, found, shape, dtype, name, operation, read_log(comm, replay))
    elif ordering == "fixed-point":
        reducer = FixedPointReducer(comm, found, shape, dtype, name)
    elif ordering == "exact":
        reducer = ExactReducer(comm, found, shape, dtype, name)
    else:
        short = math.prod(shape) * dtype.itemsize <= (PAIR_BYTES if comm.size == 2 else SHORT_BYTES)
        schedule = found.schedule(comm.size, short, **_context(comm, found, blocks, nodes))
        _require_commuting(found, operation, schedule)
        schedule, part = _for_collective(schedule, collective, comm.rank, root)
        if collective == "allgather":
            reducer = GatheringReducer(comm, found, shape, dtype, name, schedule)
        elif accumulation is None:
            reducer = ScheduleReducer(comm, found, shape, dtype, name, operation, schedule, part)
        else:
            reducer = AccumulatingReducer(comm, found, shape, dtype, name, accumulation, schedule, part)
    reducer.checked = bool(check)
    return reducer


def _accumulation(
    ordering: Ordering, name: str, dtype: np.dtype, operation: Operation
) -> Accumulation | None:
    """None where partial sums are held as the contributions are. Raises ChoiceError for what does not go together."""
    catalog.check(ordering.name, "none", name)
    return None if name == "working" else accumulate_.get(name, dtype, operation)


def _require_commuting(ordering: Ordering, operation: Operation, schedule: Schedule) -> None:
    if operation.commutative or keeps_order(schedule):
        return
    enough = [o.name for o in catalog.orderings() if o.scheduled and keeps_order(o.schedule(schedule.size))]
    raise ChoiceError(
        f"operation {operation.name!r} is not commutative, and ordering {ordering.name!r} combines the ranks of "
        f"{schedule.size} in another order than theirs; these keep it: {', '.join(enough)}"
    )


def _for_collective(schedule: Schedule, collective: str, rank: int, root: int):
    """The schedule for the collective, and what the caller gets of the total: None for all of it on all ranks."""
    if collective == "reduce":
        return collectives.reduce(schedule, root), lambda total: total if rank == root else None
    if collective == "reduce-scatter":
        mine = partial(evenly, chunks=schedule.size, chunk=rank)
        return collectives.reduce_scatter(schedule), lambda total: total.reshape(-1)[slice(*mine(total.size))]
    return (collectives.allgather(schedule) if collective == "allgather" else schedule), None


def _scheduled() -> str:
    return ", ".join(o.name for o in catalog.orderings() if o.scheduled)


def _what(collective: str, root: int) -> str:
    return f"{collective} to rank {root}" if collective == "reduce" else collective


def _understand(comm, ordering, shape, dtype, operation, collective, root):
    """The ordering, the shape as a tuple, the dtype and the operation; raises for what cannot be planned."""
    found = catalog.get(ordering)
    operation = operations.get(operation)
    shape = tuple(operator.index(n) for n in np.atleast_1d(np.asarray(shape, dtype=object)))
    if any(n < 0 for n in shape):
        raise ValueError(f"shape {shape} has a negative length")
    dtype = _dtype(dtype)
    supported = NUMBERS.get(ordering, NATIVE_NUMBERS if ordering == "native" else ANY_NUMBERS)
    if dtype.name not in supported or not dtype.isnative:
        raise TypeError(
            f"ordering {ordering!r} reduces {', '.join(supported)} in native byte order, not {dtype}"
        )
    if ordering in NUMBERS and operation is not operations.SUM:
        raise ChoiceError(
            f"ordering {ordering!r} makes sums only, no {operation.name}: choose another ordering"
        )
    if ordering == "native" and operations.OPERATIONS.get(operation.name) is not operation:
        raise ChoiceError(
            f"ordering 'native' does {', '.join(operations.OPERATIONS)}, not {operation.name!r} of the caller's"
        )
    if ordering == "arrival" and not operation.commutative:
        raise ChoiceError(
            f"operation {operation.name!r} is not commutative, and 'arrival' combines in any order: choose direct"
        )
    known("collective", collective, COLLECTIVES)
    if collective != "allreduce" and not found.scheduled:
        raise ChoiceError(
            f"ordering {ordering!r} does allreduce only, no {collective}, as it has no schedule: choose {_scheduled()}"
        )
    if collective == "allgather" and "owners" in found.needs:
        raise ChoiceError(
            f"ordering {ordering!r} adds over blocks; an allgather has none: choose direct or ring"
        )
    if not 0 <= operator.index(root) < comm.size:
        raise ChoiceError(f"root {root} is no rank of this communicator: choose 0 ... {comm.size - 1}")
    return found, shape, dtype, operation


def _require_context(comm, ordering, replay, blocks, nodes) -> None:
    """Raise for what does not go with the ordering, or is missing."""
    if replay is not None and ordering.name != "arrival":
        raise ReplayError(f"ordering {ordering.name!r} has no order of arrival to replay; only 'arrival' has")
    if ordering.name == "arrival" and comm.size > SIZE_LIMIT:
        raise ValueError(
            f"ordering 'arrival' logs ranks in 16 bits: at most {SIZE_LIMIT} ranks, not {comm.size}"
        )
    if "owners" in ordering.needs and blocks is None:
        raise ValueError(
            f"ordering {ordering.name!r} adds over blocks: pass blocks=, the numbers of this rank's blocks, one for "
            "each of its contributions"
        )
    if nodes is not None and len(nodes) != comm.size:
        raise ValueError(f"nodes names the nodes of {len(nodes)} ranks: it needs one for each of {comm.size}")


def _dtype(dtype) -> np.dtype:
    """`dtype`, of which bfloat16 may also be given by its name."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype)


def _context(comm: MPI.Comm, ordering: Ordering, blocks, nodes) -> dict:
    """What the schedule depends on beside the number of ranks; collective where it depends on anything."""
    context = {}
    if "owners" in ordering.needs:
        context["owners"] = owners_of(comm.allgather(sorted(int(block) for block in blocks)))
    if "nodes" in ordering.needs:
        context["nodes"] = nodes_of(comm) if nodes is None else tuple(nodes)
    return context


def owners_of(blocks: list[list[int]]) -> tuple[int, ...]:
    """The owner of every block, from the blocks of every rank. Raises ValueError unless each has exactly one."""
    count = sum(map(len, blocks))
    owners = {block: rank for rank, own in enumerate(blocks) for block in own}
    if sorted(owners) != list(range(count)):
        listed = "; ".join(f"rank {rank}: {own}" for rank, own in enumerate(blocks[:8]))
        raise ValueError(f"blocks must be 0 ... {count - 1}, each on one rank: {listed}")
    return tuple(owners[block] for block in range(count))


def nodes_of(comm: MPI.Comm) -> tuple[int, ...]:
    """The node of every rank, numbered by its first rank: ranks that can share memory are on one node."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED, comm.rank)
    first = comm.allgather(node.bcast(comm.rank, 0))
    node.Free()
    return tuple(first)


def _agree_on(comm: MPI.Comm, asked: str, failure: Exception | None, name: str) -> None:
    """Return if every rank can plan, and plans the same; else raise on every rank, so that none waits."""
    if not agree(comm, digest_of(asked.encode())):
        listed = by_rank(comm.allgather(asked))
        if failure is None:
            label = f"reducer {name!r}" if name else "one reducer"
            raise PlanMismatch(f"ranks do not ask for the same {label}: {listed}")
    if failure is not None:
        raise failure
