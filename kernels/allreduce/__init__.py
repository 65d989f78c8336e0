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
    accumulate: str = "working",
    collective: str = "allreduce",
    root: int = 0,
    blocks: Sequence[int] | None = None,
    nodes: Sequence[int] | None = None,
):
    """Make a reducer for one communicator, shape and type; collective over `comm`, with the same arguments.

    `reducer(contributions)` combines `contributions` (k, *shape), those of this rank's k >= 0 blocks in ascending
    global block index, over all blocks of all ranks, and returns the total (*shape,). The array belongs to the reducer
    and is valid until the next call, unless `out=` (C-contiguous, (*shape,)) is given, which may be the memory of the
    contribution: reduction in place. Contributions in GPU memory give a total there. No zero total is -0.0, but for
    native. `reducer.start(contributions, out=None)` returns at once; `reducer.finish()` gives the total, and
    `reducer.progress()` moves things on in between.

    `ordering`   a name of the catalogue, maybe with parameters: "k-nomial:k=8".
    `dtype`      float64, float32, float16, bfloat16 or int64; float64 or float32 for fixed-point and exact; no narrow
                 types for native.
    `check`      before every call verify that all ranks pass the same shape and type, else CallMismatch on all; after
                 it that all hold the same bits, else RanksDisagree. Without it, what does not fit raises on its rank
                 alone, while the others wait for it.
    `replay`     (arrival only) iterates over recorded orders, one per call, each (size,); rank 0's is used, so other
                 ranks may pass any iterable.
    `name`       appears in messages.
    `operation`  "sum", "prod", "min", "max" or an `Operation` of your own.
    `accumulate` in what partial sums are held and travel: "working", the dtype; "float64"; "compensated", pairs of sum
                 and error; "order-free", integers, which make any ordering's bits those of fixed-point and its
                 guarantee layout. See `kernels.allreduce.accumulate`.
    `collective` "allreduce"; "reduce", which returns None but on rank `root`; "reduce-scatter", which returns elements
                 evenly(n, size, rank) of the flat total; "allgather", which takes one contribution of each rank and
                 returns all, (size, *shape). The last three for orderings with a schedule.
    `blocks`     the numbers of this rank's blocks, one for each contribution; block-tree needs them.
    `nodes`      the node of every rank, for two-level; found by shared memory where not given.

    Raises, on every rank alike: ChoiceError for unknown names, or what does not go together; TypeError for another
    dtype; ValueError for an impossible shape, blocks or a communicator that was freed; PlanMismatch where ranks ask for
    different things; ReplayError for a log that does not fit. The reducer raises ReplayError when its log is used up,
    TypeError and ValueError for contributions of another type or shape, RuntimeError after `free()`.
    """
    from kernels.allreduce.execution.planning import plan as make  # loads mpi4py, which starts MPI

    return make(
        comm,
        ordering,
        shape,
        dtype,
        check,
        replay,
        name,
        operation=operation,
        accumulate=accumulate,
        collective=collective,
        root=root,
        blocks=blocks,
        nodes=nodes,
    )
