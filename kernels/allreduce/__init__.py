"""All-reduce whose order of additions is chosen, stated, and the same wherever it is promised.

    reducer = plan(comm, ordering="direct", shape=(2,))
    total = reducer(contributions)      # (k, 2): the partial sums of this rank's k blocks
    reducer.free()

`python -m kernels.allreduce` lists the orderings. What they do and how to choose: docs/allreduce.md.
Importing this package does not load MPI; `plan` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernels.allreduce.catalog import Ordering, check, orderings
from kernels.allreduce.errors import CallMismatch, PlanMismatch, RanksDisagree, ReplayError, ScheduleError
from kernels.allreduce.operations import Operation
from kernels.allreduce.schedule import Message, Round, Schedule, Sum

__all__ = [
    "CallMismatch",
    "Message",
    "Operation",
    "Ordering",
    "PlanMismatch",
    "RanksDisagree",
    "ReplayError",
    "Round",
    "Schedule",
    "ScheduleError",
    "Sum",
    "check",
    "orderings",
    "plan",
]


def plan(
    comm,
    ordering: str = "direct",
    shape: int | tuple[int, ...] = (),
    dtype="float64",
    check: bool = False,
    replay: Iterable | None = None,
    name: str = "",
    *,
    operation: str | Operation = "sum",
    blocks: Sequence[int] | None = None,
    nodes: Sequence[int] | None = None,
):
    """Make a reducer for one communicator, shape and type; collective over `comm`, with the same arguments.

    `reducer(contributions)` sums `contributions` (k, *shape), the partial sums of this rank's k >= 0 blocks
    in ascending global block index, over all blocks of all ranks, and returns the total (*shape,). The array
    belongs to the reducer: it is valid until the next call. No zero total is -0.0.

    `dtype` is float64, float32 or, except for fixed-point and exact, int64. `check` compares the bits of the
    total across ranks after every call and raises RanksDisagree. `replay` (arrival only) iterates over
    recorded orders, one per call, each (size,); rank 0's is used, so other ranks may pass any iterable.
    `name` appears in messages.

    Raises, on every rank alike: ChoiceError for an unknown ordering; TypeError for another dtype; ValueError
    for an impossible shape; PlanMismatch where ranks ask for different things; ReplayError for a log that
    does not fit. The reducer raises ReplayError when its log is used up, TypeError and ValueError for
    contributions of another type or shape, RuntimeError after `free()`.
    """
    from kernels.allreduce.planning import plan as make  # loads mpi4py, which starts MPI

    return make(
        comm, ordering, shape, dtype, check, replay, name, operation=operation, blocks=blocks, nodes=nodes
    )
